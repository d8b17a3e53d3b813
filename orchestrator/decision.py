"""From trials, requests and gates to the decision of a sweep: which arms may be ranked where, and what follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from engines.base import Arm
from orchestrator.judgement import Point
from orchestrator.metrics import measure, summarise
from orchestrator.plan import Plan, Unit
from orchestrator.records import Decision, GateResult, Look, PointDecision, TrialRecord, TrialState
from orchestrator.rounds import due
from orchestrator.selection import Measurements, measurements
from orchestrator.spec import SweepSpec
from orchestrator.statistics import Bootstrap
from orchestrator.wiring import below_floor

MAX_ERROR_SHARE = 0.01
"""An arm that fails more of its requests than this is not ranked, however fast the others were."""

BadTrials = Mapping[tuple[str, int, int], str]
"""(arm, concurrency, block) of the planned trials that do not count, with the reason."""


def decide(
    plan: Plan,
    trials: Sequence[TrialRecord],
    requests: pd.DataFrame,
    gates: Sequence[GateResult],
    looks: Sequence[Look] = (),
) -> Decision:
    """The decision of a whole sweep, of the blocks that were due after `looks`. `requests` are the valid trials'
    (Trials.requests).

    Where greedy texts can be compared, every speculative arm needs a passed gate to be ranked; elsewhere the decision
    says that equivalence was not checked.
    """
    spec, rule = plan.spec, plan.spec.selection
    bad = bad_trials(due(plan, looks), trials)
    unchecked = why_unchecked(spec)
    failed = failed_gates(plan, gates)
    points = [decide_point(plan, at, requests, bad, failed, looks) for at in spec.workload.concurrency]
    main = next(point for point in points if point.concurrency == spec.decision_concurrency)
    bootstrap = Bootstrap(rule.confidence, rule.resamples, rule.seed)
    return Decision(
        verdict=main.verdict,
        arm=main.arm,
        sentence=main.reason + (f"; equivalence was not checked: {unchecked}" if unchecked else ""),
        question=spec.question,
        baseline=rule.baseline,
        concurrency=main.concurrency,
        points=points,
        gates=list(gates),
        unchecked=unchecked,
        summaries=summarise(requests, trials, plan.arms, spec.slo, bootstrap),
        invalid_trials=[f"{arm} at concurrency {at}, block {block}: {why}" for (arm, at, block), why in bad.items()],
        margin=rule.margin,
        confidence=rule.confidence,
        looks=list(looks),
    )


def decide_point(
    plan: Plan,
    concurrency: int,
    requests: pd.DataFrame,
    bad: BadTrials,
    failed: Mapping[str, str],
    looks: Sequence[Look] = (),
) -> PointDecision:
    """One point's verdict among the arms that passed their gate and whose every trial there is valid and answered."""
    rule = plan.spec.selection
    found, excluded = rankable(plan, concurrency, requests, bad, failed, looks)
    point = Point(concurrency, rule, excluded)
    if found is None or rule.baseline in excluded:
        return point.invalid(f"the baseline {rule.baseline} is out ({excluded[rule.baseline]})")
    return point.judge(found)


def rankable(
    plan: Plan,
    concurrency: int,
    requests: pd.DataFrame,
    bad: BadTrials,
    failed: Mapping[str, str],
    looks: Sequence[Look] = (),
) -> tuple[Measurements | None, dict[str, str]]:
    """What may be ranked at a point, and the arms that may not, with the reason. None where no arm may."""
    own = [item for item in looks if item.concurrency == concurrency]
    given_up = {arm: f"dropped after {item.blocks} blocks: {why}" for item in own for arm, why in item.dropped.items()}
    excluded = given_up | dict(failed) | _with_bad_trials(bad, concurrency)
    ranked = [arm for arm in plan.arms if arm.name not in excluded]
    if not ranked:
        return None, excluded
    measured = measure(requests[requests["concurrency"] == concurrency])
    excluded |= below_floor(plan, measured) | _with_errors(measured, ranked)
    return measurements(measured, [arm for arm in ranked if arm.name not in excluded]), excluded


def bad_trials(units: Sequence[Unit], trials: Sequence[TrialRecord]) -> BadTrials:
    """Every trial due that was not measured or not valid. An arm is ranked only where it has none."""
    stored = {record.digest: record for record in trials}
    bad = {}
    for trial in (trial for unit in units for trial in unit.trials):
        key = (trial.arm.name, trial.concurrency, trial.block)
        record = stored.get(trial.digest)
        if record is None:
            bad[key] = "not measured"
        elif record.state is not TrialState.VALID:
            bad[key] = record.reason or record.state.value
    return bad


def why_unchecked(spec: SweepSpec) -> str:
    """Why the sweep runs no equivalence gate; empty when it runs one."""
    if spec.workload.temperature > 0:
        return f"the workload is sampled (temperature {spec.workload.temperature:g})"
    return "" if spec.equivalence.enabled else "the gate is switched off"


def failed_gates(plan: Plan, gates: Sequence[GateResult]) -> dict[str, str]:
    """Arms without a passed gate, with the reason; none in a sweep that runs no gate.

    A speculative arm that no gate looked at has not passed one.
    """
    if why_unchecked(plan.spec):
        return {}
    looked_at = {gate.arm for gate in gates}
    unseen = [arm.name for arm in plan.arms if arm.speculative and arm.name not in looked_at]
    missing = dict.fromkeys(unseen, "no equivalence gate was run for it")
    return missing | {g.arm: f"equivalence gate failed: {g.reason}" for g in gates if not g.passed}


def _with_bad_trials(bad: BadTrials, concurrency: int) -> dict[str, str]:
    excluded: dict[str, str] = {}
    for (arm, at, block), reason in bad.items():
        if at == concurrency:
            excluded.setdefault(arm, f"invalid trial in block {block}: {reason}")
    return excluded


def _with_errors(measured: pd.DataFrame, arms: Sequence[Arm]) -> dict[str, str]:
    excluded = {}
    for arm in arms:
        ok = measured.loc[measured["arm"] == arm.name, "ok"]
        errors = int((~ok).sum())
        if errors > MAX_ERROR_SHARE * len(ok):
            excluded[arm.name] = f"{errors} of {len(ok)} requests failed"
    return excluded
