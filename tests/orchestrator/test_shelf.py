from pathlib import Path
from typing import Any

import pytest

from orchestrator.cards import read_card
from orchestrator.shelf import Shelf, is_running
from orchestrator.store import RunStore
from tests.dashboards.synthetic import WINNER, synthetic_run


@pytest.fixture
def fresh(tmp_path: Path) -> RunStore:
    return synthetic_run(tmp_path / "winner-synthetic", WINNER)


def test_a_run_is_running_while_a_sweep_holds_it(fresh: RunStore) -> None:
    assert not is_running(fresh)
    (fresh.folder / "decision.json").unlink()
    with fresh.lock():
        assert is_running(fresh)
    assert not is_running(fresh)


def test_a_decided_run_that_is_taken_up_again_is_running(fresh: RunStore) -> None:
    with fresh.lock():
        assert is_running(fresh)


def test_looking_does_not_keep_a_sweep_out(fresh: RunStore) -> None:
    (fresh.folder / "decision.json").unlink()
    with fresh.lock():
        is_running(fresh)
    with fresh.lock():
        pass


def test_cards_are_kept_until_a_file_changes(fresh: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf(fresh.folder.parent)
    card = shelf.card(fresh.folder.name)
    assert card == read_card(fresh)
    with monkeypatch.context() as patched:
        patched.setattr("orchestrator.shelf.read_card", _never)
        assert shelf.card(fresh.folder.name) == card
        assert Shelf(fresh.folder.parent).card(fresh.folder.name) == card
    (fresh.folder / "decision.json").write_text("{")
    assert shelf.card(fresh.folder.name).verdict is None
    assert len(shelf.card(fresh.folder.name).problems) == 1


def test_a_run_that_was_renamed_has_its_new_name(fresh: RunStore) -> None:
    Shelf(fresh.folder.parent).cards()
    fresh.folder.rename(fresh.folder.with_name("new"))
    assert [card.name for card in Shelf(fresh.folder.parent).cards()] == ["new"]


def _never(*_: Any) -> Any:
    raise AssertionError("built again")
