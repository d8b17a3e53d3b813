import json
import math
from typing import Any

import pytest

from engines.base import SpecCounters
from engines.fake.adapter import FakeEngine
from orchestrator.answer import Answer
from orchestrator.load.stream import BadStreamError, Stream
from orchestrator.prompts import Prompt
from orchestrator.records import REQUEST_COLUMNS, request_frame

PROMPT = Prompt("p-1", "chat", (("user", "Hello"),))
COUNTERS = {"verify_steps": 2, "drafted": 14, "accepted": 3, "emitted": 4, "accepted_by_depth": [2, 1]}


def chunk(text: str = "", ids: list[int] | None = None, finish: str | None = None, **rest: Any) -> str:
    choice = {"delta": {"content": text}, "token_ids": ids, "finish_reason": finish}
    return json.dumps({"choices": [choice], **rest})


def usage(tokens: int, **rest: Any) -> str:
    counts = {"prompt_tokens": 7, "completion_tokens": tokens, "speculative": COUNTERS, **rest}
    return json.dumps({"choices": [], "usage": counts})


def answered(*events: str) -> Answer:
    """Of a request scheduled at 10, sent at 10.5 and answered by an event a second from 11 on."""
    stream = Stream(0, scheduled=10.0)
    stream.sent = 10.5
    try:
        for second, event in enumerate(events):
            stream.take(event.encode(), 11.0 + second)
        stream.complete()
    except BadStreamError as error:
        stream.error = str(error)
    return Answer.received(PROMPT, stream.report(), FakeEngine())


def test_chunks_of_several_tokens_are_put_together() -> None:
    role = json.dumps({"choices": [{"delta": {"role": "assistant", "content": ""}}], "prompt_token_ids": [1, 2]})
    answer = answered(role, chunk("a b", [5, 6]), chunk("", [7]), chunk(" c", [8, 9], "stop"), usage(5))
    assert (answer.text, answer.token_ids, answer.prompt_token_ids) == ("a b c", [5, 6, 7, 8, 9], [1, 2])
    assert (answer.first, answer.last, answer.chunks, answer.first_chunk_tokens) == (12.0, 14.0, 3, 2)
    assert (answer.prompt_tokens, answer.output_tokens, answer.finish_reason) == (7, 5, "stop")
    assert answer.counters == SpecCounters(2, 14, 3, 4, (2, 1))


def test_a_token_without_text_counts_as_content() -> None:
    answer = answered(chunk("", [5]), chunk("é", [6], "length"), usage(2))
    assert (answer.first, answer.last, answer.first_chunk_tokens) == (11.0, 12.0, 1)


def test_seconds_per_token_leave_the_first_chunk_out() -> None:
    assert answered(chunk("a", [1, 2]), chunk("b", [3, 4, 5], "stop"), usage(5)).seconds_per_token() == 1 / 3
    assert answered(chunk("a", [1, 2], "stop"), usage(2)).seconds_per_token() == 0.25


def test_cached_tokens_are_noted_and_may_be_null() -> None:
    events = chunk("a", [1], "stop")
    assert answered(events, usage(1, prompt_tokens_details={"cached_tokens": 6})).cached_tokens == 6
    assert answered(events, usage(1, prompt_tokens_details=None)).cached_tokens == 0


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([chunk("a", [1], "stop")], "the server sent no usage"),
        ([chunk("a", [1], "stop"), json.dumps({"usage": {"prompt_tokens": 1}})], "usage cannot be read"),
        ([chunk("a", [1], "stop"), json.dumps({"usage": [1]})], "usage cannot be read"),
        ([chunk("a", [1], "stop"), usage(0)], "the server generated no token"),
        ([chunk("a", [1, 2], "stop"), usage(3)], "2 token ids came, usage says 3 tokens"),
        ([chunk("a", None, "stop"), usage(1)], "0 token ids came, usage says 1 tokens"),
        ([chunk("a", [1]), usage(1)], "finish_reason is 'error' instead of stop or length"),
        ([chunk("a", [1], "abort"), usage(1)], "finish_reason is 'abort'"),
        (['{"error": {"message": "out of\\nmemory"}}'], "the server broke off: out of memory"),
        ([chunk("a", ["x"], "stop"), usage(1)], "a chunk cannot be read: "),  # type: ignore[list-item]
        ([chunk("a", [2**31], "stop"), usage(1)], "a chunk cannot be read: "),
        ([chunk("a", [2**99], "stop"), usage(1)], "a chunk cannot be read: "),
        ([chunk("a", [-1], "stop"), usage(1)], "a chunk cannot be read: "),
        (["{half"], "a chunk is not JSON: {half"),
        (["[1]"], "a chunk is not an object"),
    ],
)
def test_an_answer_that_cannot_count_says_why_in_one_line(events: list[str], message: str) -> None:
    error = answered(*events).error
    assert message in error
    assert "\n" not in error


def test_chunks_keep_their_times_and_tokens() -> None:
    answer = answered(chunk("a", [1, 2]), chunk("b", [3, 4, 5], "stop"), usage(5))
    assert (answer.chunk_times, answer.chunk_tokens, answer.coalesced) == ([11.0, 12.0], [2, 3], 0)
    row = answer.row(zero=10.0)
    assert (row["chunk_times"], row["chunk_tokens"]) == ([1.0, 2.0], [2, 3])


def test_the_row_has_every_column_and_times_from_zero() -> None:
    row = answered(chunk("a", [5, 6], "stop"), usage(2)).row(zero=10.0)
    assert list(row) == list(REQUEST_COLUMNS)
    assert (row["scheduled"], row["sent"], row["first"], row["last"]) == (0.0, 0.5, 1.0, 1.0)
    frame = request_frame([row])
    assert list(frame["accepted_by_depth"][0]) == [2, 1]
    assert math.isnan(float(str(Answer(PROMPT, 0.0).row(0.0)["first"])))
