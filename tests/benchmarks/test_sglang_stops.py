"""Answers that stop, of servers that speak one letter a token: ten letters, over and over."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import pytest

from benchmarks.sglang.servers import Server
from benchmarks.sglang.stops import stopped

LETTERS = "abcdefghij"


class Speaker:
    """`past`: tokens that it shows behind a stop; `behind`: those that only its stream shows. `first` shifts its
    letters, `alone` those of answers that are to stop; `deaf`: it goes on to the end.
    """

    def __init__(self, past: int = 0, behind: int = 0, first: int = 0, alone: int = 0, deaf: bool = False) -> None:
        self.past, self.behind, self.first, self.alone, self.deaf = past, behind, first, alone, deaf

    def generate_all(self, prompts: Iterable[Sequence[int]], tokens: int, _: int) -> list[dict[str, Any]]:
        return [self.generate(prompt, tokens) for prompt in prompts]

    def generate(self, prompt: Sequence[int], tokens: int, **stop: Any) -> dict[str, Any]:
        first = prompt[0] + self.first + (self.alone if stop else 0)
        ids = [(first + place) % 10 for place in range(tokens)]
        text, end = "".join(LETTERS[token] for token in ids), tokens
        if "stop" in stop and not self.deaf:
            end = text.index(stop["stop"][0], 1)  # an answer has a token before its end
        elif "stop_token_ids" in stop and not self.deaf:
            end = ids.index(stop["stop_token_ids"][0], 1)
        shown = min(end + self.past, tokens) if end < tokens else tokens
        reason = {"type": "stop" if end < tokens else "length"}
        return {"text": text[:shown], "output_ids": ids[:shown], "meta_info": {"finish_reason": reason}}

    def pieces(self, prompt: Sequence[int], tokens: int, **stop: Any) -> list[dict[str, Any]]:
        text = self.generate(prompt, tokens, **stop)["text"] + "x" * self.behind
        return [{"text": letter} for letter in text]


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (Speaker(), {"alike": 3}),
        (Speaker(past=1), {"other end": 3}),
        (Speaker(behind=1), {"other end": 3}),
        (Speaker(deaf=True), {"other end": 3}),
        (Speaker(alone=1), {"other tokens": 3}),
    ],
    ids=["sound", "past the end", "in the stream", "never stops", "another text when asked alone"],
)
def test_nothing_behind_the_end_may_be_seen(other: Speaker, expected: dict[str, int]) -> None:
    up = cast(dict[str, Server], {"ar": Speaker(), "tree": other})
    assert stopped(up, [[0], [3], [7]], 40) == {"tree": {"compared": 3, "string": expected, "token": expected}}


def test_other_texts_are_not_compared() -> None:
    up = cast(dict[str, Server], {"ar": Speaker(), "tree": Speaker(first=1)})
    assert stopped(up, [[0], [3], [7]], 40) == {"tree": {"compared": 0, "string": {}, "token": {}}}


def test_a_stop_that_plain_decoding_does_not_reach_either_is_told() -> None:
    up = cast(dict[str, Server], {"ar": Speaker(deaf=True), "tree": Speaker(deaf=True)})
    expected = {"not reached": 2}
    assert stopped(up, [[0], [3]], 40) == {"tree": {"compared": 2, "string": expected, "token": expected}}


def test_short_answers_are_not_compared() -> None:
    up = cast(dict[str, Server], {"ar": Speaker(), "tree": Speaker()})
    assert stopped(up, [[0]], 20)["tree"]["compared"] == 0
