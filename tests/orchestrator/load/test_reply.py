import gc
import weakref

import pytest

from orchestrator.load.reply import Reply
from orchestrator.load.stream import BadStreamError, Stream, as_it_is
from tests.orchestrator.load.raw import END, HEAD, chunked, event, token, usage, whole

PLAIN = whole(token(1), token(2, 3, finish="stop"), usage(3))


def reply() -> tuple[Reply, Stream]:
    stream = Stream(0)
    return Reply(stream, as_it_is), stream


@pytest.mark.parametrize("apart", [True, False])
def test_events_before_garbage_are_in_the_stream(apart: bool) -> None:
    made, stream = reply()
    good, garbage = HEAD + chunked(token(1)), b"zz\r\nnonsense"
    with pytest.raises(BadStreamError, match="the answer is not HTTP: "):
        made.feed([(1.0, good), (2.0, garbage)] if apart else [(1.0, good + garbage)])
    assert (stream.token_ids, stream.times) == ([1], [1.0])


@pytest.mark.parametrize("extra", [PLAIN, HEAD + chunked(token(9)), b"junk", b"\x00"])
@pytest.mark.parametrize("apart", [True, False])
def test_what_follows_the_answer_is_not_in_it_and_spoils_the_connection(extra: bytes, apart: bool) -> None:
    made, stream = reply()
    made.feed([(1.0, PLAIN), (2.0, extra)] if apart else [(1.0, PLAIN + extra)])
    assert stream.token_ids == [1, 2, 3]
    assert (made.complete, made.kept) == (True, False)


def test_a_whole_answer_keeps_the_connection() -> None:
    made, stream = reply()
    made.feed([(1.0, PLAIN)])
    assert (made.complete, made.kept, stream.coalesced) == (True, True, 1)


def test_events_of_any_shape_among_plain_ones_are_read() -> None:
    """Pings, two events in a piece, one event in two pieces, CR LF: all between pieces of one event each."""
    odd = [b": ping\n\n", token(2) + token(3), token(4)[:9], token(4)[9:], token(5).replace(b"\n", b"\r\n")]
    pieces = [token(1), *odd, token(6, finish="stop"), usage(6), event("[DONE]")]
    for together in (1, 3, 20):
        made, stream = reply()
        reads = [(0.0, HEAD), *((float(number), chunked(piece)) for number, piece in enumerate(pieces, 1))]
        reads.append((20.0, b"0\r\n\r\n"))
        for start in range(0, len(reads), together):
            made.feed(reads[start : start + together])
        assert stream.token_ids == [1, 2, 3, 4, 5, 6]
        assert stream.times == [1.0, 3.0, 3.0, 5.0, 6.0, 7.0]
        assert made.complete


@pytest.mark.parametrize("after", ["[DONE]", "nonsense"])
@pytest.mark.parametrize("together", [1, 3, 20])
def test_what_follows_the_last_event_is_ignored_however_reads_are_grouped(together: int, after: str) -> None:
    made, stream = reply()
    pieces = [token(1), token(2, finish="stop"), usage(2), event("[DONE]"), event(after)]
    reads = [(0.0, HEAD), *((float(number), chunked(piece)) for number, piece in enumerate(pieces, 1))]
    reads.append((9.0, b"0\r\n\r\n"))
    for start in range(0, len(reads), together):
        made.feed(reads[start : start + together])
    assert (made.complete, stream.token_ids) == (True, [1, 2])


def test_an_event_that_began_before_is_not_taken_for_a_whole_one() -> None:
    made, _ = reply()
    made.feed([(1.0, HEAD + chunked(b"data: 1\n"))])
    with pytest.raises(BadStreamError, match="a chunk is not JSON"):
        made.feed([(2.0, chunked(token(2)))])


def test_another_answer_does_not_complete_one_that_broke_off() -> None:
    made, stream = reply()
    with pytest.raises(BadStreamError, match=r"the stream ended before \[DONE\]"):
        made.feed([(1.0, HEAD + chunked(token(1)) + END), (2.0, PLAIN)])
    assert stream.token_ids == [1]


def test_nothing_is_left_for_the_garbage_collector() -> None:
    made, _ = reply()
    made.feed([(1.0, PLAIN)])
    seen = weakref.ref(made)
    gc.disable()
    try:
        made.release()
        del made
        assert seen() is None
    finally:
        gc.enable()
