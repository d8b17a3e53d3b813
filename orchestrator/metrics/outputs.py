"""Everything of outputs.json, from a decided run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from orchestrator.metrics.crossover import crossings
from orchestrator.metrics.curve import cliffs, verify_curve
from orchestrator.metrics.economy import Terms, rates
from orchestrator.metrics.positions import by_position
from orchestrator.outputs import Outputs
from orchestrator.plan import Plan
from orchestrator.records import ArmSummary, TrialRecord


def make_outputs(
    plan: Plan,
    trials: Sequence[TrialRecord],
    requests: pd.DataFrame,
    summaries: Sequence[ArmSummary],
    telemetry: Callable[[str], pd.DataFrame],
) -> Outputs:
    """`requests` are the valid trials' (Trials.requests), `telemetry` gives a trial's samples by its digest."""
    spec, profile = plan.spec, plan.spec.profiles[plan.profile]
    curve = verify_curve(trials, plan.arms, spec.selection.confidence)
    terms = Terms(profile.match.gpus, profile.price_per_gpu_hour, spec.slo)
    return Outputs(
        slo={name: value for name, value in spec.slo.model_dump().items() if value is not None},
        price_per_gpu_hour=profile.price_per_gpu_hour,
        curve=curve,
        cliffs=cliffs(curve),
        crossings=crossings(requests, plan.arms, spec.selection),
        rates=rates(summaries, trials, requests, telemetry, terms),
        positions=by_position(requests),
    )
