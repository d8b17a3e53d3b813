"""Plans for the fake engine, for tests that start processes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from engines.base import Arm, Deployment, Method
from orchestrator.cluster import Choice
from orchestrator.plan import Plan, Trial, make_plan
from orchestrator.prompts import load_prompts
from orchestrator.spec import MatchSpec, SweepSpec
from orchestrator.validity import Limits
from tests.orchestrator.sweeps import fake_sweep

ANY_LOAD = Limits(*[float("inf")] * len(fields(Limits)))
"""Tests judge behaviour on whatever machine they run; the limits have tests of their own."""

MATCH = MatchSpec(cpus=1, memory_gib=0.1)
CHOICE = Choice("local", 1, MATCH, "profile local")


def deployment(**changes: Any) -> Deployment:
    values: dict[str, Any] = {
        "software": "fake 1",
        "interpreter": sys.executable,
        "target": "/models/target",
        "target_digest": "t",
        "drafter": "/models/drafter",
        "drafter_digest": "d",
        "device": "cpu",
        "dtype": "float32",
        "threads": 1,
        "max_batch": 4,
        "max_context": 512,
        "ready_timeout_s": 20.0,
    }
    return Deployment(**values | changes)


def sweep_plan(arms: list[dict[str, Any]] | None = None, deployed: Deployment | None = None, **changes: Any) -> Plan:
    """The fake sweep, with other arms or other top-level keys."""
    keys: dict[str, Any] = dict(changes) | ({"arms": arms} if arms else {})
    spec = SweepSpec.model_validate(fake_sweep(**keys))
    return make_plan(spec, "local", {"fake": deployed or deployment()}, load_prompts(spec.workload.prompts))


def plain(**options: Any) -> dict[str, Any]:
    """The baseline."""
    return {"method": "autoregressive", "name": "autoregressive", "options": options}


def trial(options: Mapping[str, Any] | None = None, method: str = "dflash", **changes: Any) -> Trial:
    """One trial of an arm with these options."""
    arms = [plain(), {"method": method, "name": "subject", "options": dict(options or {})}]
    planned = sweep_plan(arms, **changes)
    return next(trial for trial in planned.trials if trial.arm.name == "subject")


def arm(method: Method = Method.AUTOREGRESSIVE, **options: Any) -> Arm:
    return Arm("subject", "fake", method, options=options)
