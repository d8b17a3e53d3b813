"""What a server finds in its environment, whoever supervises it."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.promotion.host import Unit


def environment(unit: Unit) -> Mapping[str, str]:
    """The unit's variables, and the GPUs it may see: none for a CPU."""
    return {**unit.env, "CUDA_VISIBLE_DEVICES": ",".join(unit.gpus)}
