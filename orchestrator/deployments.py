"""From a profile to where each engine runs and with which models."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engines import containers, envs
from engines.base import Deployment, EngineError
from engines.registry import get_engine
from orchestrator.errors import InputError
from orchestrator.models import ResolvedModel
from orchestrator.spec import EngineSpec, ProfileSpec, SweepSpec
from orchestrator.synthetic import refuse_synthetic

CALIBRATION_CONCURRENCY = 4
"""The other batch size at which plain decoding is compared with itself to calibrate near-ties."""


@dataclass(frozen=True)
class Place:
    """Where an engine is: its interpreter and, where that is in one, the image's digest; and what it is."""

    interpreter: str
    software: str
    image: str | None = None


def installed(name: str, engine: EngineSpec) -> Place:
    """Where the profile says. EngineError where there is no such engine."""
    software = get_engine(name).software
    if engine.image:
        image = containers.image_id(engine.image)
        return Place(containers.PYTHON, f"{software(containers.address(image))}, image {image}", image)
    interpreter = envs.interpreter(engine.interpreter) if engine.interpreter else sys.executable
    return Place(interpreter, software(interpreter))


def promised(name: str, engine: EngineSpec) -> Place:
    """As `installed`, but an environment that is not installed here is what its pins promise: for looking ahead."""
    entry = envs.ENVIRONMENTS.get(engine.interpreter or "")
    if entry is None or envs.state(entry) is not envs.State.MISSING:
        return installed(name, engine)
    return Place(entry.name, entry.promise)


def make_deployments(
    spec: SweepSpec,
    profile: str,
    resolve: Callable[[str], ResolvedModel],
    find: Callable[[str, EngineSpec], Place] = installed,
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
        place = find(name, chosen.engines[name])
        deployments[name] = _deployment(place, chosen.engines[name], target, drafter, max_batch)
    _check_arms(spec, chosen, deployments)
    return deployments


def _deployment(
    place: Place, engine: EngineSpec, target: ResolvedModel, drafter: ResolvedModel | None, max_batch: int
) -> Deployment:
    return Deployment(
        software=place.software,
        interpreter=place.interpreter,
        image=place.image,
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
    for arm in (item.resolved(profile.engine) for item in spec.expanded_arms()):
        engine, deployment = get_engine(arm.engine), deployments[arm.engine]
        if arm.needs_drafter and deployment.drafter is None:
            raise InputError(f"arm {arm.name!r} needs a drafter: set `models.drafter` in the profile")
        if arm.method not in engine.methods:
            allowed = ", ".join(sorted(engine.methods))
            raise InputError(f"arm {arm.name!r}: engine {engine.name} has no {arm.method}; it has {allowed}")
        try:
            engine.validate(arm, deployment)
            refuse_synthetic(arm, deployment, {}, {})
        except EngineError as error:
            raise InputError(f"arm {arm.name!r}: {error}") from error
