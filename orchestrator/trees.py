"""A few draft trees of a trial, recorded after its load for people to look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from pydantic import ValidationError

from engines.base import Endpoint, Engine, EngineError
from orchestrator.answer import Answer
from orchestrator.plan import Trial
from orchestrator.records import DraftTrees, TreeStep

STEPS = 8


async def record_trees(
    engine: Engine, endpoint: Endpoint, trial: Trial, answers: Sequence[Answer]
) -> DraftTrees | None:
    """The first steps of the trial's first prompt, once more and outside of what is measured. None for plain decoding,
    for all but an arm's first trial, and where the engine does not tell. What goes wrong is told, and costs no trial.
    """
    first = min(answers, key=lambda answer: answer.sent)
    once = trial.block == 0 and trial.concurrency == min(trial.workload.concurrency)
    if not once or not trial.arm.speculative or not first.prompt_token_ids:
        return None
    try:
        trees = await engine.draft_trees(endpoint, first.prompt_token_ids, STEPS)
        if trees is None:
            return None
        steps = [TreeStep.model_validate(asdict(tree)) for tree in trees]
    except (EngineError, ValidationError) as error:
        return DraftTrees(prompt_id=first.prompt.prompt_id, steps=[], problem=_line(error))
    return DraftTrees(prompt_id=first.prompt.prompt_id, steps=steps)


def _line(error: EngineError | ValidationError) -> str:
    return str(error) if isinstance(error, EngineError) else error.errors()[0]["msg"]
