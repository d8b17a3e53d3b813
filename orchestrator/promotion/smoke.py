"""The smoke test: a new replica answers the run's prompts as the run did, and about as fast."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from engines.base import Endpoint, EngineError
from engines.registry import get_engine
from orchestrator.equivalence import compare_with, judge
from orchestrator.promotion import probes
from orchestrator.promotion.errors import PromotionError
from orchestrator.promotion.release import Release

_MEASURED, _SERVED = "measured", "served"
_ROUNDING = 1e-9
WARMUP = 2
"""Prompts asked before the smoke test, for nothing."""


@dataclass(frozen=True)
class Smoke:
    """What the smoke test saw."""

    prompts: int
    near_ties: int
    acceptance_length: float
    tpot_ms: float

    def words(self) -> str:
        ties = f" ({self.near_ties} part at a near-tie)" if self.near_ties else ""
        return (
            f"{self.prompts} of {self.prompts} answers are the run's{ties}, "
            f"acceptance length {self.acceptance_length:.2f}, TPOT {self.tpot_ms:.2f} ms"
        )


async def smoke(release: Release, endpoint: Endpoint, tpot_tolerance: float) -> Smoke:
    """Test one replica. PromotionError says which answer, or which number, is not the run's.

    Some prompts are asked before to warm up, as before a trial.
    """
    answers = await probes.ask(release, endpoint, release.record, WARMUP)
    failed = answers[~answers["ok"]]
    if len(failed):
        row = failed.iloc[0]
        raise PromotionError(f"{len(failed)} of {len(answers)} prompts failed, first {row.prompt_id}: {row.error}")
    near_ties = await _texts(release, endpoint, answers)
    return _numbers(release, answers, near_ties, tpot_tolerance)


async def _texts(release: Release, endpoint: Endpoint, answers: pd.DataFrame) -> int:
    """How many answers part from the run's at a near-tie, by the engine's own ranking. PromotionError beyond that."""
    engine, record = get_engine(release.record.arm.engine), release.record
    agreement = compare_with(_side_by_side(release, answers), _SERVED, _MEASURED)
    try:
        rankings = {item: await engine.ranking(endpoint, list(item.prefix)) for item in agreement.candidates}
    except EngineError as error:
        raise PromotionError(
            f"{len(agreement.candidates)} answers are not the run's, and whether at a near-tie cannot be told: {error}"
        ) from error
    (result,), _ = judge([agreement], rankings, record.near_tie_gap)
    if not result.passed:
        raise PromotionError(f"the answers are not the run's: {result.reason}")
    return result.near_ties


def _side_by_side(release: Release, answers: pd.DataFrame) -> pd.DataFrame:
    """The run's answers and the server's as requests of two arms."""
    expected = pd.DataFrame(
        {
            "arm": _MEASURED,
            "prompt_id": prompt.prompt_id,
            "prompt_token_ids": prompt.prompt_token_ids,
            "token_ids": prompt.token_ids,
            "finish_reason": prompt.finish_reason,
            "error": "",
            "last": 0.0,
        }
        for prompt in release.record.smoke
    )
    columns = [name for name in expected.columns if name != "arm"]
    both = pd.concat([expected, answers[columns].assign(arm=_SERVED)], ignore_index=True)
    return both.assign(concurrency=release.record.promise.concurrency)


def _numbers(release: Release, answers: pd.DataFrame, near_ties: int, tolerance: float) -> Smoke:
    """PromotionError for an acceptance length below, or a TPOT above, the run's interval on the same prompts."""
    record = release.record
    acceptance, tpot_ms = acceptance_length(answers), 1e3 * float(answers["tpot"].mean())
    least, most = record.smoke_acceptance_length.low, record.smoke_tpot_ms.high * (1 + tolerance)
    if acceptance < least - _ROUNDING:
        raise PromotionError(
            f"acceptance length {acceptance:.2f} lies below the run's interval, which begins at {least:.2f}"
        )
    if not tpot_ms <= most:
        raise PromotionError(
            f"TPOT {tpot_ms:.2f} ms lies above the run's interval, which ends at {record.smoke_tpot_ms.high:.2f} ms "
            f"(and {100 * tolerance:g} % are tolerated)"
        )
    return Smoke(len(answers), near_ties, acceptance, tpot_ms)


def acceptance_length(answers: pd.DataFrame) -> float:
    """Pooled over requests; 1 where nothing is drafted."""
    steps = int(answers["verify_steps"].sum())
    return 1 + int(answers["accepted"].sum()) / steps if steps else 1.0
