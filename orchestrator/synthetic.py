"""Acceptance that is set instead of measured: engines can pretend one for tests, and such a speed is nobody's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engines.base import Arm, Deployment, EngineError

VARIABLES = ("SGLANG_SIMULATE_ACC_LEN",)
"""Environment variables by which an engine pretends an acceptance length; SGLang's own default is -1, for none."""

_MARK = "synthetic"
"""Part of vLLM's names and values for it: `rejection_sample_method: synthetic`, `synthetic_acceptance_rate`."""

_OFF = ("", "0", "-1", "none", "false")


def refuse_synthetic(
    arm: Arm, deployment: Deployment, settings: Mapping[str, object], inherited: Mapping[str, str]
) -> None:
    """EngineError where acceptance would not be the drafter's: by the arm, the profile, the environment that the engine
    inherits, or the `settings` that its server states."""
    found = next(_signs(arm, deployment, settings, inherited), None)
    if found:
        raise EngineError(f"arm {arm.name!r}: acceptance is synthetic ({found}): nothing measured with it is a result")


def _signs(
    arm: Arm, deployment: Deployment, settings: Mapping[str, object], inherited: Mapping[str, str]
) -> Iterator[str]:
    variables = dict(inherited) | dict(deployment.environment)
    yield from (f"{name}={variables[name]}" for name in VARIABLES if _is_on(variables.get(name)))
    yield from (argument for argument in deployment.arguments if _MARK in argument.lower())
    for source in (arm.options, settings):
        yield from (f"{name}: {value}" for name, value in source.items() if _marks(name, value))


def _marks(name: str, value: object) -> bool:
    return _MARK in str(value).lower() or (_MARK in name.lower() and _is_on(value))


def _is_on(value: object) -> bool:
    return value is not None and str(value).strip().lower() not in _OFF
