from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.load.events import EventSplitter, single_lines

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


PIECES = [
    b'data: {"a": "x\\n\\ndata: y"}\n\n',
    b"data: 1,2\n\n",
    b"data: ",
    b"3\n\n",
    b"\n\ndata: 4\n\n",
    b": ping\n\n",
    b"data: \n\n",
    b"data: 5\n\ndata: 6\n\n",
    b"data: 7\r\n\r\n",
    b"data: [DONE]\n\n",
    b"event: x\ndata: 8\n\n",
    b"data: 9",
    b"data: \n\n3\n\n",
]


@settings(deadline=None, max_examples=500)
@given(st.lists(st.sampled_from(PIECES), max_size=5))
@example([b"data: 5\n\ndata: 6\n\n", b"data: \n\n", b"3\n\n"])
@example([b"data: 1,2\n\n", b"data: \n\n", b"3\n\n"])
def test_single_lines_are_one_event_each_as_the_splitter_has_them(bodies: list[bytes]) -> None:
    splitter = EventSplitter()
    events = [splitter.feed(body) for body in bodies]
    lines = single_lines(bodies)
    if lines is not None:
        assert splitter.between
        assert lines == [event for (event,) in events], "each body has one"


def test_bodies_of_one_event_each_are_single_lines() -> None:
    bodies = [b'data: {"a": "\\n\\ndata: y"}\n\n', 'data: ["ü"]\n\n'.encode(), b"data: 3\n\n"]
    assert single_lines(bodies) == [b'{"a": "\\n\\ndata: y"}', '["ü"]'.encode(), b"3"]
