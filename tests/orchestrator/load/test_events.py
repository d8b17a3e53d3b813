from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.load.events import EventSplitter

STREAM = 'data: {"a": "ü€"}\r\n\r\n: a comment\n\nevent: x\ndata: one\ndata:two\n\ndata: [DONE]\n\n'.encode()
EVENTS = ['{"a": "ü€"}'.encode(), b"one\ntwo", b"[DONE]"]


@settings(deadline=None)
@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_events_do_not_depend_on_where_the_stream_is_cut(cuts: list[int]) -> None:
    parser = EventSplitter()
    edges = [0, *sorted(cuts), len(STREAM)]
    events = [event for a, b in pairwise(edges) for event in parser.feed(STREAM[a:b])]
    assert events == EVENTS


def test_an_event_without_its_blank_line_has_not_come() -> None:
    parser = EventSplitter()
    assert parser.feed(b"data: half\n") == []
    assert parser.feed(b"\n") == [b"half"]
