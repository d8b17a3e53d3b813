"""From a sweep file and a profile to trials in an order: the same for the same input, a trace file included."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice

from engines.base import Arm, Deployment
from orchestrator.errors import InputError
from orchestrator.load.arrivals import Arrival, assign, trace_rows
from orchestrator.orders import order
from orchestrator.prompts import Prompt, PromptSet
from orchestrator.prompts import blocks as deal
from orchestrator.spec import SweepSpec, WarmupSpec, WorkloadSpec

PROTOCOL = 3
"""Version of the way a trial is measured. A change makes earlier trials another measurement."""

PLACES = frozenset({"interpreter", "image", "target", "drafter", "ready_timeout_s"})
"""Fields of a deployment that say where things lie, not what they are: their digests and versions decide a trial."""


@dataclass(frozen=True)
class Trial:
    """One arm x one workload point x one block. `digest` identifies everything that decides it."""

    arm: Arm
    deployment: Deployment
    concurrency: int
    block: int
    prompts: tuple[Prompt, ...]
    workload: WorkloadSpec
    warmup: WarmupSpec
    digest: str
    arrivals: tuple[Arrival, ...] = ()
    """When each prompt is due; empty for a closed loop."""


@dataclass(frozen=True)
class Unit:
    """All arms on one block at one concurrency, in the order drawn: what a slot works through without a pause."""

    block: int
    concurrency: int
    trials: tuple[Trial, ...]


@dataclass(frozen=True)
class Plan:
    """Everything a sweep will do."""

    profile: str
    spec: SweepSpec
    arms: tuple[Arm, ...]
    deployments: Mapping[str, Deployment]
    prompt_set: PromptSet
    units: tuple[Unit, ...]
    digest: str

    @property
    def trials(self) -> tuple[Trial, ...]:
        return tuple(trial for unit in self.units for trial in unit.trials)

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)


def make_plan(spec: SweepSpec, profile: str, deployments: Mapping[str, Deployment], prompt_set: PromptSet) -> Plan:
    """Cross arms, workload points and blocks; the order of arms in each block follows from the recorded seed.

    Prompts that a search has seen are in no block. InputError where blocks would be too small for their concurrency.
    """
    if spec.search is not None:
        prompt_set = replace(prompt_set, prompts=prompt_set.prompts[spec.search.prompts :])
    chosen = spec.profiles[profile]
    arms = tuple(item.resolved(chosen.engine) for item in spec.expanded_arms())
    accelerator = chosen.match.accelerator
    dealt = deal(prompt_set, spec.blocks.max, spec.blocks.seed)
    _check_sizes(spec, min(len(own) for own in dealt))
    traced = iter(trace_rows(spec.workload.arrivals, len(prompt_set.prompts)))
    points = spec.workload.concurrency
    units: list[Unit] = []
    for block, own in enumerate(dealt):
        prompts, arrivals = assign(own, spec.workload, block, list(islice(traced, len(own))))
        for concurrency in points:
            trials = tuple(
                make_trial(spec, arm, deployments[arm.engine], accelerator, concurrency, block, prompts, arrivals)
                for arm in arms
            )
            units.append(in_order(Unit(block, concurrency, trials), spec, len(units)))
    decides = {"question": spec.question, "trials": [t.digest for u in units for t in u.trials]}
    # A run's intervals hold the luck of a start or do not: its trials are not half of this kind and half of that.
    digest = _sha(decides | ({"restart": True} if spec.blocks.restart else {}))
    return Plan(profile, spec, arms, deployments, prompt_set, tuple(units), digest)


def in_order(unit: Unit, spec: SweepSpec, number: int) -> Unit:
    """The unit, the `number`th of its plan, with its trials in the order that its arms are due."""
    trials = {trial.arm.name: trial for trial in unit.trials}
    drawn = order(sorted(trials), spec.blocks.seed, number, len(spec.workload.concurrency))
    return replace(unit, trials=tuple(trials[name] for name in drawn))


def _check_sizes(spec: SweepSpec, smallest: int) -> None:
    highest = max(spec.workload.concurrency)
    if spec.workload.arrivals.pattern == "closed" and smallest < highest:
        raise InputError(
            f"{spec.blocks.max} blocks of {smallest} prompts cannot keep {highest} requests in flight; "
            "lower blocks.max or give more prompts"
        )


def thin_points(plan: Plan) -> list[str]:
    """A line for each concurrency at which filling the slots and emptying them again is the larger part of a trial."""
    smallest = {at: min(len(u.trials[0].prompts) for u in plan.units if u.concurrency == at) for at in _closed(plan)}
    return [
        f"concurrency {at}: a block's {prompts} prompts keep all {at} requests in flight for under half of a trial, "
        "so its numbers say little of steady load; use fewer blocks or more prompts"
        for at, prompts in smallest.items()
        if prompts < 2 * at
    ]


def _closed(plan: Plan) -> list[int]:
    """Concurrencies that a closed loop holds; of one at a time there is nothing to fill."""
    workload = plan.spec.workload
    return [at for at in workload.concurrency if at > 1] if workload.arrivals.pattern == "closed" else []


def make_trial(
    spec: SweepSpec,
    arm: Arm,
    deployment: Deployment,
    accelerator: str | None,
    concurrency: int,
    block: int,
    prompts: tuple[Prompt, ...],
    arrivals: tuple[Arrival, ...] = (),
) -> Trial:
    """One trial, identified by everything that decides it."""
    workload = spec.workload.model_dump(mode="json", exclude={"prompts", "concurrency", "arrivals"})
    decides = {
        "protocol": PROTOCOL,
        "arm": asdict(arm),
        "accelerator": accelerator,
        "deployment": {k: v for k, v in asdict(deployment).items() if k not in PLACES},
        "concurrency": concurrency,
        "block": block,
        "prompts": [(p.prompt_id, p.messages) for p in prompts],
        "workload": workload,
        "arrivals": [asdict(arrival) for arrival in arrivals],
        "warmup": spec.warmup.model_dump(mode="json"),
    }
    digest = _sha(decides)
    return Trial(arm, deployment, concurrency, block, prompts, spec.workload, spec.warmup, digest, arrivals)


def _sha(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
