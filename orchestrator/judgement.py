"""The verdict at one workload point, and the sentence that says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.records import Comparison, PointDecision, Verdict
from orchestrator.selection import Measurements, choose, compare, split
from orchestrator.spec import SelectionSpec
from orchestrator.statistics import trial_noise

MIN_PROMPTS = 4
"""Fewest prompts in either half from which anything is said."""


@dataclass(frozen=True)
class Point:
    """A workload point to judge. `excluded` (arm to reason) are the arms not ranked there; they are only told of."""

    concurrency: int
    rule: SelectionSpec
    excluded: Mapping[str, str]

    def judge(self, found: Measurements) -> PointDecision:
        """Winner, tie or invalid among the arms measured.

        A winner's interval lies above 1 + margin and its p-value, after Holm's adjustment over all arms, below alpha.
        """
        if len(found.arms) < 2:
            return self.tie(f"no other arm could be ranked ({self._exclusions()})")
        choosing = split(found.blocks, self.rule.seed)
        fewest = min(int(choosing.sum()), int((~choosing).sum()))
        if fewest < MIN_PROMPTS:
            return self.invalid(f"one half has {fewest} prompts measured in every arm, and {MIN_PROMPTS} are the least")
        names = [arm.name for arm in found.arms]
        baseline = names.index(self.rule.baseline)
        noise = trial_noise(np.log(found.step), found.blocks)
        candidate = names[choose(found.take(choosing), baseline, noise, self.rule)]
        return self._verdict(candidate, compare(found, choosing, baseline, noise, self.concurrency, self.rule))

    def tie(self, reason: str, candidate: str | None = None, comparisons: Sequence[Comparison] = ()) -> PointDecision:
        """Nothing is shown to be better than the baseline, which is what to keep."""
        sentence = f"tie at concurrency {self.concurrency}: keep {self.rule.baseline}; {reason}"
        return self._decision(Verdict.TIE, self.rule.baseline, sentence, candidate, comparisons)

    def invalid(self, reason: str) -> PointDecision:
        """The measurements allow no verdict."""
        sentence = f"no decision at concurrency {self.concurrency}: {reason}"
        return self._decision(Verdict.INVALID, None, sentence, None, ())

    def _verdict(self, candidate: str, comparisons: Sequence[Comparison]) -> PointDecision:
        found = next(comparison for comparison in comparisons if comparison.arm == candidate)
        claim = (
            f"decodes {found.speedup.estimate:.2f}x as fast as {self.rule.baseline} at concurrency {self.concurrency} "
            f"({100 * self.rule.confidence:g} % CI {found.speedup.low:.2f} to {found.speedup.high:.2f}, "
            f"{found.prompts} held-out prompts)"
        )
        short = shortfall(found, self.rule)
        if short:
            return self.tie(f"the best other arm, {candidate}, {claim}, {short}", candidate, comparisons)
        return self._decision(Verdict.WINNER, candidate, f"{candidate} {claim}", candidate, comparisons)

    def _exclusions(self) -> str:
        return "; ".join(f"{arm}: {reason}" for arm, reason in self.excluded.items()) or "there is none"

    def _decision(
        self, verdict: Verdict, arm: str | None, reason: str, candidate: str | None, comparisons: Sequence[Comparison]
    ) -> PointDecision:
        return PointDecision(
            concurrency=self.concurrency,
            verdict=verdict,
            arm=arm,
            candidate=candidate,
            reason=reason,
            excluded=dict(self.excluded),
            comparisons=list(comparisons),
        )


def shortfall(found: Comparison, rule: SelectionSpec) -> str:
    """What a comparison lacks for a win; empty when nothing."""
    if found.speedup.low <= 1 + rule.margin:
        return f"where a winner's interval lies above {1 + rule.margin:g}"
    if found.p_adjusted > 1 - rule.confidence:
        return f"with p = {found.p_adjusted:.3f} after Holm's adjustment over the arms"
    return ""
