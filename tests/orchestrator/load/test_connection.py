import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from engines.base import SpecCounters
from engines.fake.adapter import FakeEngine
from orchestrator.load.client import LoadClient, LoadResult
from orchestrator.load.connection import Connection
from orchestrator.load.stream import Stream, as_it_is
from orchestrator.prompts import Prompt
from orchestrator.spec import WorkloadSpec
from tests.orchestrator.load.raw import CUT, END, HEAD, RawServer, Wire, chunked, event, token, usage, whole

PROMPTS = [Prompt(f"p-{n}", "chat", (("user", "Hello"),)) for n in range(3)]
PLAIN = whole(token(1), token(2, 3), token(4, finish="stop"), usage(4))


async def answered(
    *answers: Sequence[bytes], prompts: int = 1, pause_s: float = 0.08, **workload: Any
) -> tuple[LoadResult, RawServer]:
    server = RawServer(*answers, pause_s=pause_s)
    spec = WorkloadSpec.model_validate({"request_timeout_s": 5.0} | workload)
    async with server.running() as endpoint, LoadClient(FakeEngine(), endpoint, spec) as client:
        return await client.run(PROMPTS[:prompts], 1, 9), server


@pytest.mark.parametrize("width", [1, 2, 3, 7, 50])
async def test_an_answer_does_not_depend_on_where_its_reads_are_cut(width: int) -> None:
    pieces = [PLAIN[at : at + width] for at in range(0, len(PLAIN), width)]
    if width < 7:  # otherwise some hundred pauses
        pieces = [*pieces[:40], b"".join(pieces[40:])]
    result, _ = await answered(pieces, pause_s=0.01)
    (answer,) = result.answers
    assert answer.error == ""
    assert (answer.token_ids, answer.text, answer.chunks) == ([1, 2, 3, 4], "xxx", 3)
    assert (answer.output_tokens, answer.prompt_tokens, answer.finish_reason) == (4, 3, "stop")


async def test_events_of_one_read_share_its_stamp_and_are_counted_as_coalesced() -> None:
    together = HEAD + chunked(token(1)), chunked(token(2) + token(3)) + chunked(token(4, finish="stop"))
    result, _ = await answered([*together, chunked(usage(4) + event("[DONE]")) + END])
    (answer,) = result.answers
    first, *others = answer.chunk_times
    assert len(set(others)) == 1
    assert others[0] > first
    assert (answer.coalesced, answer.chunks, answer.chunk_tokens) == (2, 4, [1, 1, 1, 1])
    assert result.coalesced_share == 0.5
    assert (answer.first, answer.last) == (first, others[0])


async def test_each_of_many_reads_keeps_its_own_stamp_though_they_are_parsed_together() -> None:
    pieces = [HEAD, *(chunked(token(n)) for n in range(40)), chunked(usage(40) + event("[DONE]")) + END]
    result, _ = await answered(pieces, pause_s=0.01)
    (answer,) = result.answers
    assert answer.token_ids == list(range(40))
    assert min(after - before for before, after in pairwise(answer.chunk_times)) > 0.005
    assert answer.coalesced == 0


async def test_what_came_before_a_time_out_is_in_the_answer_and_so_is_what_was_wrong_with_it() -> None:
    begun = [HEAD, *(chunked(token(number)) for number in range(5))]
    kept, _ = await answered(begun, pause_s=0.02, request_timeout_s=0.6)
    assert kept.answers[0].token_ids == [0, 1, 2, 3, 4]
    broken, _ = await answered([*begun, chunked(b"data: {half\n\n")], pause_s=0.02, request_timeout_s=0.6)
    assert broken.answers[0].error == "a chunk is not JSON: {half"


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
async def test_an_answers_end_is_seen_at_once_wherever_it_is_cut(cut: int) -> None:
    wire, line, stream = Wire(), Connection(as_it_is), Stream(0)
    line.connection_made(wire)
    asking = asyncio.create_task(line.ask(b"request", stream, 60.0))
    await asyncio.sleep(0)
    for piece in [HEAD, *(chunked(token(number)) for number in range(30)), chunked(usage(30) + event("[DONE]"))]:
        line.data_received(piece)
    line.data_received(END[:cut])
    line.data_received(END[cut:])
    await asyncio.wait_for(asking, 5.0)
    assert (stream.error, len(stream.token_ids)) == ("", 30)
    wire.close()


async def test_an_event_belongs_to_the_read_that_ends_it() -> None:
    one = chunked(token(1)) + chunked(token(2, finish="stop"))
    cut = len(one) - 5
    result, _ = await answered([HEAD + one[:cut], one[cut:], chunked(usage(2) + event("[DONE]")) + END])
    first, second = result.answers[0].chunk_times
    assert second > first
    assert result.answers[0].coalesced == 0


async def test_tokens_of_each_chunk_are_kept() -> None:
    result, _ = await answered([whole(token(1, 2, 3), token(4), token(5, 6, finish="length"), usage(6))])
    (answer,) = result.answers
    assert (answer.chunk_tokens, answer.first_chunk_tokens, answer.finish_reason) == ([3, 1, 2], 3, "length")
    assert answer.counters in (None, SpecCounters())


async def test_a_connection_is_kept_for_the_next_request() -> None:
    result, server = await answered([PLAIN], prompts=3)
    assert result.failure == ""
    assert (server.requests, server.connections) == (3, 1)


async def test_a_server_that_closes_after_each_answer_gets_a_new_connection() -> None:
    closing = PLAIN.replace(b"Transfer-Encoding", b"Connection: close\r\nTransfer-Encoding")
    result, server = await answered([closing, CUT], prompts=3)
    assert result.failure == ""
    assert server.connections == 3


async def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    body = token(1, finish="stop") + usage(1) + event("[DONE]")
    result, _ = await answered([b"HTTP/1.1 200 OK\r\n\r\n" + body, CUT], prompts=2)
    assert result.failure == ""


async def test_a_length_is_as_good_as_chunks() -> None:
    body = token(1, finish="stop") + usage(1) + event("[DONE]")
    result, _ = await answered([b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body])
    assert result.failure == ""


@pytest.mark.parametrize(
    ("writes", "message"),
    [
        ([CUT], "connection lost: the server closed it before the answer was complete"),
        ([HEAD + chunked(token(1)), CUT], "connection lost: the server closed it before the answer was complete"),
        ([b"HTTP/1.1 200 OK\r\n\r\n" + token(1), CUT], "connection lost: the server closed it before"),
        ([HEAD + chunked(token(1)) + END], "the stream ended before [DONE]"),
        ([whole(token(1, finish="stop"))], "the server sent no usage"),
        ([b"SSH-2.0-OpenSSH_9.2\r\n"], "the answer is not HTTP: "),
        ([HEAD + b"zz\r\nnonsense"], "the answer is not HTTP: "),
        ([whole(b"data: {half\n\n")], "a chunk is not JSON: {half"),
        ([whole(b"data: [1]\n\n")], "a chunk is not an object: [1]"),
        ([whole(b'data: {"choices": 5}\n\n')], 'a chunk cannot be read: {"choices": 5}'),
        ([whole(b'data: {"choices": [7]}\n\n')], 'a chunk cannot be read: {"choices": [7]}'),
        ([whole(event({"choices": [{"delta": {"content": 7}}]}), usage(1))], "a chunk cannot be read: "),
        ([whole(event({"error": {"message": "out of\nmemory"}}))], "the server broke off: out of memory"),
        ([whole(b"data: \xff\xfe\n\n")], "a chunk is not JSON: "),
        ([b"HTTP/1.1 503 Busy\r\nContent-Length: 20\r\n\r\n" + b'{"error": "too busy"}'[:20]], "HTTP 503: "),
        ([b'HTTP/1.1 400 No\r\n\r\n{"error": {"message": "too long"}}', CUT], "HTTP 400: too long"),
        ([HEAD + chunked(token(1))], "no complete answer within 0.3 s"),
        ([b""], "no complete answer within 0.3 s"),
    ],
)
async def test_whatever_goes_wrong_is_one_line(writes: list[bytes], message: str) -> None:
    silent = message.startswith("no complete")
    # An empty write is CUT; a server that never says a word holds the connection with half a line.
    told = [b"HTTP/1.1 "] if writes == [b""] and silent else writes
    result, _ = await answered(told, prompts=2, request_timeout_s=0.3 if silent else 5.0)
    first, second = result.answers
    assert first.error.startswith(message), first.error
    assert "\n" not in first.error
    assert first.finish_reason == "error"
    assert second.error.startswith("not sent")


async def test_what_comes_after_an_answer_does_not_reach_the_next_request() -> None:
    result, _ = await answered([PLAIN + whole(token(9, finish="stop"), usage(1))], [PLAIN], prompts=2)
    assert [answer.token_ids for answer in result.answers] == [[1, 2, 3, 4]] * 2
    assert result.failure == ""
