"""First divergences with the texts around them, for people to judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from orchestrator.records import Divergence

_BEFORE, _AFTER = 70, 90
"""Characters shown before and after the place where the texts part."""
NOTE = (
    "Greedy text of each arm against plain decoding on the same engine. A near-tie is a first divergence where neither "
    "text’s token lies further below the target’s best than the arm’s bound: the sweep’s number, or in 16 bits how far "
    "plain decoding was seen to contradict its own target and one spacing of the type more, two at least."
)
"""What the table of the gates shows."""


@dataclass(frozen=True)
class Passage:
    """The end of the text in common, then plain decoding's text and the arm's from where they part."""

    before: str
    expected: str
    actual: str


def worst(divergences: pd.DataFrame, limit: int) -> list[Divergence]:
    """The `limit` divergences with the widest gaps, violations first."""
    ordered = divergences.sort_values(["near_tie", "gap"], ascending=[True, False], kind="stable").head(limit)
    return [Divergence.model_validate(row) for row in ordered[list(Divergence.model_fields)].to_dict("records")]


def passages(
    divergences: list[Divergence], requests: pd.DataFrame, references: Mapping[str, str]
) -> list[Passage | None]:
    """A passage a divergence; None where a text is not stored or the two read the same. `references`: from an arm to
    the one that decoded plainly on its engine."""
    rows = requests[["arm", "concurrency", "prompt_id", "text"]].to_dict("records")
    texts = {(row["arm"], row["concurrency"], row["prompt_id"]): str(row["text"]) for row in rows}
    found = []
    for divergence in divergences:
        place = divergence.concurrency, divergence.prompt_id
        expected = texts.get((references.get(divergence.arm), *place))
        found.append(_passage(expected, texts.get((divergence.arm, *place))))
    return found


def _passage(expected: str | None, actual: str | None) -> Passage | None:
    if expected is None or actual is None or expected == actual:
        return None
    pairs = zip(expected, actual, strict=False)
    shared = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(expected), len(actual)))
    before = expected[max(0, shared - _BEFORE) : shared]
    return Passage(
        before=f"…{before}" if shared > _BEFORE else before,
        expected=_head(expected[shared:]),
        actual=_head(actual[shared:]),
    )


def _head(text: str) -> str:
    return f"{text[:_AFTER]}…" if len(text) > _AFTER else text
