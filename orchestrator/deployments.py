"""From a profile to where each engine runs and with which models."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from engines import envs
from engines.base import Deployment, EngineError, Method
from engines.registry import get_engine
from orchestrator.errors import InputError
from orchestrator.models import ResolvedModel
from orchestrator.spec import EngineSpec, ProfileSpec, SweepSpec

CALIBRATION_CONCURRENCY = 4
"""The other batch size at which plain decoding is compared with itself to calibrate near-ties."""


def make_deployments(
    spec: SweepSpec, profile: str, resolve: Callable[[str], ResolvedModel]
) -> Mapping[str, Deployment]:
    """One deployment for each engine that the arms use. InputError for an arm that its engine cannot run there."""
    chosen = spec.profiles[profile]
    target = resolve(chosen.models.target)
    drafter = resolve(chosen.models.drafter) if chosen.models.drafter else None
    max_batch = max(*spec.workload.concurrency, CALIBRATION_CONCURRENCY)
    deployments = {}
    for name in sorted({arm.engine or chosen.engine for arm in spec.expanded_arms()}):
        if name not in chosen.engines:
            raise InputError(f"profile {profile}: an arm wants engine {name!r}; it lists {', '.join(chosen.engines)}")
        deployments[name] = _deployment(name, chosen.engines[name], target, drafter, max_batch)
    _check_arms(spec, chosen, deployments)
    return deployments


def _deployment(
    name: str, engine: EngineSpec, target: ResolvedModel, drafter: ResolvedModel | None, max_batch: int
) -> Deployment:
    interpreter = envs.interpreter(engine.interpreter) if engine.interpreter else sys.executable
    return Deployment(
        software=get_engine(name).software(interpreter),
        interpreter=interpreter,
        target=str(target.path),
        target_digest=target.digest,
        drafter=str(drafter.path) if drafter else None,
        drafter_digest=drafter.digest if drafter else None,
        device=engine.device,
        dtype=engine.dtype,
        threads=engine.threads,
        max_batch=max_batch,
        max_context=engine.max_context,
        arguments=tuple(engine.arguments),
        environment=engine.environment,
        ready_timeout_s=engine.ready_timeout_s,
    )


def _check_arms(spec: SweepSpec, profile: ProfileSpec, deployments: Mapping[str, Deployment]) -> None:
    for arm in spec.expanded_arms():
        engine = get_engine(arm.engine or profile.engine)
        deployment = deployments[engine.name]
        if arm.method in (Method.DFLASH, Method.DDTREE, Method.EAGLE3) and deployment.drafter is None:
            raise InputError(f"arm {arm.label()!r} needs a drafter: set `models.drafter` in the profile")
        if arm.method not in engine.methods:
            allowed = ", ".join(sorted(engine.methods))
            raise InputError(f"arm {arm.label()!r}: engine {engine.name} has no {arm.method}; it has {allowed}")
        try:
            engine.validate(arm.resolved(profile.engine), deployment)
        except EngineError as error:
            raise InputError(f"arm {arm.label()!r}: {error}") from error
