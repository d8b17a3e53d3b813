"""The equivalence gate: greedy text of every speculative arm against plain decoding on the same engine.

Three steps, because the middle one needs a server: `compare_texts` finds where texts part, the caller asks the engine
for the best next tokens after each candidate's prefix, `judge` decides. Texts may part only where the target itself was
undecided: the logits of both tokens lie at most epsilon below the best one's (three tokens can tie as well as two).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from engines.base import Arm, Method, Ranking
from orchestrator.records import Divergence, GateResult

STOPPED = -1
"""Stands for the token where a text ended by itself: the model chose a stop token, which the text does not hold."""

CUT = -2
"""Stands for the token where a text ended for any other reason. Never a near-tie."""

_ARITHMETIC = 1e-4
"""What the difference of two log-probabilities, float32 and of size 20, may be off the logits' difference."""

_MANTISSA_BITS = {"float16": 10, "bfloat16": 7}


@dataclass(frozen=True)
class Candidate:
    """Where an arm's text first departs from plain decoding's, and the prefix (prompt and common text) before it."""

    arm: str
    prompt_id: str
    concurrency: int
    position: int
    expected: int
    actual: int
    prefix: tuple[int, ...]


@dataclass(frozen=True)
class Agreement:
    """One arm's texts next to its reference's. A text is one prompt at one concurrency.

    `unreadable` texts have no token ids, or another tokenisation of the prompt in the two arms.
    """

    arm: str
    reference: str | None
    texts: int
    unreadable: int
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class _Text:
    arm: str
    prompt_id: str
    concurrency: int
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    stopped: bool

    def token(self, position: int) -> int:
        if position < len(self.tokens):
            return self.tokens[position]
        return STOPPED if self.stopped else CUT


def compare_texts(requests: pd.DataFrame, arms: Sequence[Arm], baseline: str) -> list[Agreement]:
    """One agreement for each speculative arm, from the valid trials' greedy requests (Trials.requests)."""
    texts = _texts(requests)
    return [_agreement(texts, arm.name, _reference(arm, arms, baseline)) for arm in arms if arm.speculative]


def compare_with(requests: pd.DataFrame, arm: str, reference: str) -> Agreement:
    """One arm's texts next to those of any other, by their names among the requests."""
    return _agreement(_texts(requests), arm, reference)


def self_divergences(requests: pd.DataFrame, arm: str) -> list[Candidate]:
    """Where an arm parts from itself at other concurrencies than its lowest: what calibrates epsilon."""
    own = [text for text in _texts(requests) if text.arm == arm]
    lowest = min((text.concurrency for text in own), default=0)
    reference = {text.prompt_id: text for text in own if text.concurrency == lowest}
    pairs = [(reference[text.prompt_id], text) for text in own if text.prompt_id in reference]
    return [_candidate(*pair) for pair in pairs if _comparable(*pair) and pair[0].tokens != pair[1].tokens]


def near_tie_gap(setting: float | Literal["auto"], dtype: str, seen: Iterable[float]) -> float:
    """Epsilon: the largest logit gap that counts as a tie. 0 allows no divergence at all.

    `auto` is 0 in float32. In a 16-bit type it is the largest gap at which plain decoding was seen to contradict its
    own target (`seen`: gaps where it chose another token at another batch size, and the regrets of its tokens where the
    arm that is judged parts from it) and one spacing more, two at least.
    Logits of 16 to 32, where greedy choices are made, are spaced by 2^(4 - mantissa bits): 1/8 in bfloat16, 1/64 in
    float16. One spacing more, since the largest of a finite sample is exceeded by some larger sample of the same: on an
    H200 plain decoding parted from itself at up to 0.375, and 8 of 3,814 divergences of six arms, stock DFlash among
    them, were at 0.5. Two at least: either logit may round to a neighbour, and a sweep at one concurrency calibrates
    nothing. Gaps above seven spacings count for nothing, so that the most is eight (a factor e in probability, in
    bfloat16): an engine that contradicts itself by more does not round, it is broken.
    """
    if setting != "auto":
        return setting
    if dtype == "float32":
        return 0.0
    spacing = 2.0 ** (4 - _MANTISSA_BITS[dtype])
    return max([2 * spacing, *(gap + spacing for gap in seen if gap <= 7 * spacing + _ARITHMETIC)])


def own_regret(candidate: Candidate, ranking: Ranking) -> float:
    """How far plain decoding's own token lies below the best one of the same engine's ranking: a prefill, which rounds
    elsewhere than decoding does. It says nothing of the arm's token, right or wrong. 0 where the text ended.

    FlashAttention 3 decodes alike at every batch size up to 16, so there is nothing to see between those; yet of 15
    divergences of trees above 0.25 six were at tokens of plain decoding that its own prefill ranked 0.5 below the best.
    """
    return ranking.regret(candidate.expected) if candidate.expected >= 0 else 0.0


def judge(
    agreements: Sequence[Agreement], rankings: Mapping[Candidate, Ranking], epsilon: float
) -> tuple[list[GateResult], list[Divergence]]:
    """Gate results in the order of `agreements`, and every divergence. `rankings` holds every candidate's."""
    results, divergences = [], []
    for agreement in agreements:
        own = [_divergence(candidate, rankings[candidate], epsilon) for candidate in agreement.candidates]
        results.append(_result(agreement, own, epsilon))
        divergences += own
    return results, divergences


def unjudged(agreement: Agreement, reason: str) -> GateResult:
    """The failed gate of an arm whose differing texts nobody could judge, because the engine could not be asked."""
    return GateResult(
        arm=agreement.arm,
        prompts=agreement.texts,
        exact=agreement.texts - agreement.unreadable - len(agreement.candidates),
        near_ties=0,
        violations=0,
        near_tie_gap=0.0,
        passed=False,
        reason=f"{len(agreement.candidates)} texts differ and the engine could not be asked how close the calls were: "
        f"{reason}",
    )


def _reference(arm: Arm, arms: Sequence[Arm], baseline: str) -> str | None:
    """Plain decoding on the arm's engine; the sweep's baseline where there are several."""
    plain = [a.name for a in arms if a.method is Method.AUTOREGRESSIVE and a.engine == arm.engine]
    return baseline if baseline in plain else next(iter(plain), None)


def _texts(requests: pd.DataFrame) -> list[_Text]:
    if requests.empty:
        return []
    answered = requests[(requests["error"] == "") & requests["last"].notna()]
    columns = ["arm", "prompt_id", "concurrency", "prompt_token_ids", "token_ids", "finish_reason"]
    return [
        _Text(arm, prompt_id, int(at), tuple(map(int, prompt)), tuple(map(int, tokens)), reason == "stop")
        for arm, prompt_id, at, prompt, tokens, reason in answered[columns].itertuples(index=False)
    ]


def _agreement(texts: Sequence[_Text], arm: str, reference: str | None) -> Agreement:
    expected = {(text.prompt_id, text.concurrency): text for text in texts if text.arm == reference}
    keyed = [((text.prompt_id, text.concurrency), text) for text in texts if text.arm == arm]
    pairs = [(expected[key], text) for key, text in keyed if key in expected]
    readable = [pair for pair in pairs if _comparable(*pair)]
    different = tuple(_candidate(*pair) for pair in readable if pair[0].tokens != pair[1].tokens)
    return Agreement(arm, reference, len(pairs), len(pairs) - len(readable), different)


def _comparable(expected: _Text, actual: _Text) -> bool:
    """Whether both have token ids, of the same prompt."""
    return bool(expected.tokens and actual.tokens and expected.prompt) and expected.prompt == actual.prompt


def _candidate(expected: _Text, actual: _Text) -> Candidate:
    shorter = min(len(expected.tokens), len(actual.tokens))
    parted = (i for i in range(shorter) if expected.tokens[i] != actual.tokens[i])
    position = next(parted, shorter)
    return Candidate(
        arm=actual.arm,
        prompt_id=actual.prompt_id,
        concurrency=actual.concurrency,
        position=position,
        expected=expected.token(position),
        actual=actual.token(position),
        prefix=expected.prompt + expected.tokens[:position],
    )


def logit_gap(candidate: Candidate, ranking: Ranking) -> float:
    """How far the worse of the two tokens lies below the target's best. Infinite for one that is not ranked.

    A stop token is not in the text, so it may be any ranked token but the other text's: the best of those.
    """
    pair = {candidate.expected, candidate.actual}
    if CUT in pair:
        return math.inf
    tokens = pair - {STOPPED}
    if STOPPED in pair:
        tokens |= {next((token for token in ranking.token_ids if token not in pair), CUT)}
    return max(ranking.regret(token) for token in tokens)


def _divergence(candidate: Candidate, ranking: Ranking, epsilon: float) -> Divergence:
    gap = logit_gap(candidate, ranking)
    return Divergence(
        arm=candidate.arm,
        prompt_id=candidate.prompt_id,
        concurrency=candidate.concurrency,
        position=candidate.position,
        expected_token=candidate.expected,
        actual_token=candidate.actual,
        gap=gap,
        near_tie=epsilon > 0 and gap <= epsilon + _ARITHMETIC,
    )


def _result(agreement: Agreement, divergences: Sequence[Divergence], epsilon: float) -> GateResult:
    near_ties = sum(divergence.near_tie for divergence in divergences)
    violations = len(divergences) - near_ties
    reason = _failure(agreement, divergences, epsilon)
    return GateResult(
        arm=agreement.arm,
        prompts=agreement.texts,
        exact=agreement.texts - agreement.unreadable - len(divergences),
        near_ties=near_ties,
        violations=violations,
        near_tie_gap=epsilon,
        passed=not reason,
        reason=reason,
    )


def _failure(agreement: Agreement, divergences: Sequence[Divergence], epsilon: float) -> str:
    """Why the gate fails; empty when it passes. It never passes for want of evidence."""
    if agreement.reference is None:
        return "no autoregressive arm on the same engine to compare with"
    if agreement.texts == 0:
        return f"no prompt answered by both it and {agreement.reference}"
    if agreement.unreadable:
        return f"{agreement.unreadable} of {agreement.texts} texts came without token ids or from another prompt"
    first = next((divergence for divergence in divergences if not divergence.near_tie), None)
    if first is None:
        return ""
    count = sum(not divergence.near_tie for divergence in divergences)
    return (
        f"{count} of {agreement.texts} texts differ from {agreement.reference}'s beyond a near-tie, first "
        f"{first.prompt_id} at token {first.position} (logit gap {first.gap:.3g}, a near-tie is {epsilon:.3g} at most)"
    )
