from pathlib import Path, PurePosixPath

import pytest

from orchestrator.errors import InputError
from orchestrator.promotion.hosts.local import LocalHost
from orchestrator.promotion.journal import Change, Entry, Journal, Kind, Mark, Placed, Replica, entry, replay

V1, V2, V3 = (Placed(name, (Replica(host="a", port=port),)) for name, port in (("v1", 1), ("v2", 2), ("v3", 3)))


def promoted(placed: Placed, kind: Kind = Kind.PROMOTE) -> list[Entry]:
    change = Change(f"to {placed.release}", kind, placed)
    return [
        entry(change, Mark.OPEN, replicas=placed.replicas),
        entry(change, Mark.BEGUN, "full"),
        entry(change, Mark.DONE, "full"),
        entry(change, Mark.CLOSED, warm_until=99.0),
    ]


def test_what_is_served_follows_from_the_entries() -> None:
    assert replay([]).serving is None
    standing = replay([*promoted(V1), *promoted(V2)])
    assert (standing.serving, standing.previous, standing.warm_until, standing.change) == (V2, V1, 99.0, None)
    third = replay([*promoted(V1), *promoted(V2), *promoted(V3)])
    assert (third.serving, third.previous) == (V3, V2)
    assert set(third.known) == {"v1", "v2", "v3"}
    assert third.ports("a") == {1, 2, 3}
    assert third.ports("b") == set()


@pytest.mark.parametrize(("entries", "turned", "done"), [(1, False, set()), (2, False, set()), (3, True, {"full"})])
def test_a_change_that_was_cut_off_is_open_and_the_old_release_serves(
    entries: int, turned: bool, done: set[str]
) -> None:
    standing = replay([*promoted(V1), *promoted(V2)[:entries]])
    assert standing.serving == V1
    assert standing.change is not None
    assert (standing.change.new, standing.change.turned, standing.change.done) == (V2, turned, done)


def test_an_undone_change_leaves_nothing() -> None:
    change = Change("c", Kind.PROMOTE, V2)
    failed = [entry(change, Mark.OPEN, replicas=V2.replicas), entry(change, Mark.FAILED, "smoke", reason="other text")]
    standing = replay([*promoted(V1), *failed])
    assert standing.change is not None
    assert standing.change.failed == "smoke: other text"
    assert replay([*promoted(V1), *failed, entry(change, Mark.UNDONE)]) == replay(promoted(V1))


def test_after_a_rollback_there_is_nothing_to_go_back_to() -> None:
    standing = replay([*promoted(V1), *promoted(V2), *promoted(V1, Kind.ROLLBACK)])
    assert (standing.serving, standing.previous) == (V1, None)
    assert set(standing.known) == {"v1", "v2"}


def test_a_retired_release_is_no_longer_known() -> None:
    retired = Entry(time="", change="", kind=Kind.PROMOTE, release="v1", mark=Mark.RETIRED)
    standing = replay([*promoted(V1), *promoted(V2), retired])
    assert (standing.serving, standing.previous) == (V2, None)
    assert set(standing.known) == {"v2"}


def test_a_line_cut_off_by_a_death_never_took_effect(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(LocalHost(), PurePosixPath(path))
    assert journal.entries() == []
    for item in promoted(V1):
        journal.add(item)
    whole = journal.standing()
    path.write_bytes(path.read_bytes() + b'{"time":"2026","chan')
    assert journal.standing() == whole
    for item in promoted(V2):
        journal.add(item)
    assert journal.standing().serving == V2


def test_a_whole_line_that_says_something_else_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"step": "start"}\n')
    with pytest.raises(InputError, match=r"local:.*journal\.jsonl:1: the journal is damaged"):
        Journal(LocalHost(), PurePosixPath(path)).entries()
