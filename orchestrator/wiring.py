"""Whether a drafter drafts as its card says it does. A tenth of that is broken wiring, not a result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from engines.base import Arm
from orchestrator.plan import Plan
from orchestrator.spec import ModelSpec

KEPT = 0.5
"""Share of the card's accepted draft tokens a step that must be left on other prompts than the card's."""


def below_floor(plan: Plan, measured: pd.DataFrame) -> dict[str, str]:
    """Arms that a model drafts for and whose acceptance length lies below its floor, with the reason."""
    models = plan.spec.profiles[plan.profile].models
    found: dict[str, str] = {}
    for arm in plan.arms:
        floor = acceptance_floor(models, plan.deployments[arm.engine].drafter) if arm.needs_drafter else None
        own = measured[measured["arm"] == arm.name]
        if floor is not None and own["verify_steps"].sum() > 0:
            found |= _verdict(arm, 1 + float(own["accepted"].sum() / own["verify_steps"].sum()), floor)
    return found


def acceptance_floor(models: ModelSpec, drafter: str | None) -> float | None:
    """The profile's floor, or 1 + half of the draft tokens a step that the drafter's training.json measured last."""
    if models.acceptance_floor is not None or drafter is None:
        return models.acceptance_floor
    try:
        card = json.loads((Path(drafter) / "training.json").read_text(encoding="utf-8"))
        return 1 + KEPT * (_linear(card) - 1)
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None  # a drafter without a card of ours


def _linear(card: Mapping[str, list[Mapping[str, float]]]) -> float:
    return float(card["evaluations"][-1]["linear"])


def _verdict(arm: Arm, length: float, floor: float) -> dict[str, str]:
    if length >= floor:
        return {}
    return {
        arm.name: f"acceptance length {length:.2f} is below the drafter's floor {floor:.2f}: its wiring looks broken"
    }
