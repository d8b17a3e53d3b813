from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dashboards.app.address import number
from dashboards.app.diff_page import apart, differences
from dashboards.app.library import Library
from dashboards.app.runs_page import FIRST, filtered, runs_page, trials
from dashboards.app.trees_page import trees_page
from dashboards.run import Run
from orchestrator.cards import Card
from orchestrator.errors import InputError
from orchestrator.records import DraftTrees, Interval, Verdict


@pytest.fixture(scope="module")
def cards(runs: Path) -> list[Card]:
    return Library(runs).cards()


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../library", "/etc", "a/b", "winner-synthetic/trials", "..\\x", "no\0", "x" * 300]
)
def test_names_do_not_leave_the_folder_of_runs(runs: Path, name: str) -> None:
    with pytest.raises(InputError, match="no run"):
        Library(runs).open(name)


def test_links_out_of_the_folder_are_not_followed(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(runs / "winner-synthetic")
    library = Library(tmp_path)
    assert library.cards() == []
    with pytest.raises(InputError):
        library.open("linked")


def test_every_run_has_a_card_and_every_card_opens(runs: Path, cards: list[Card]) -> None:
    assert {card.name for card in cards} == {path.name for path in runs.iterdir()}
    library = Library(runs)
    assert all(library.open(card.name).name == card.name for card in cards)


def test_a_damaged_run_keeps_what_can_be_read(runs: Path) -> None:
    run = Library(runs).open("damaged-synthetic")
    assert len(run.trials) == 22
    assert run.requests["trial"].nunique() == 21
    assert run.telemetry["trial"].nunique() == 21
    assert run.divergences.empty
    assert len(run.problems) == 8


def test_filters_hold_together(cards: list[Card]) -> None:
    now = datetime(2026, 3, 20, tzinfo=UTC)

    def names(**query: str) -> set[str]:
        return {card.name.removesuffix("-synthetic") for card in filtered(cards, query, now)}

    assert names(verdict="winner") == {"winner", "load"}
    assert names(verdict="winner", text="BATCHING") == {"load"}
    assert names(verdict="undecided") == {"half", "damaged", "bare"}
    assert names(engine="other") == set()
    assert "bare" not in names(model="synthetic-135m")
    assert names(age="1") == set()
    assert "winner" in names(age="7")
    assert names(age="not a number") == names()


def test_trials_are_counted(cards: list[Card]) -> None:
    shown = {card.name: trials(card.progress) for card in cards}
    assert shown["winner-synthetic"] == "24/24"
    assert shown["invalid-synthetic"] == "24/24, 1 bad"
    assert shown["half-synthetic"] == "10/24"


def test_a_diff_tells_what_differs() -> None:
    assert differences({"a": "1", "b": "2"}, {"a": "1", "c": "3"}) == [("b", "2", "–"), ("c", "–", "3")]


def test_intervals_are_apart_only_without_a_common_point() -> None:
    low, high = Interval(estimate=1, low=0.9, high=1.1), Interval(estimate=2, low=1.1, high=3)
    assert apart(low, high) == "overlap"
    assert apart(low, Interval(estimate=2, low=1.2, high=3)) == "B higher"
    assert apart(Interval(estimate=2, low=1.2, high=3), low) == "A higher"


def test_verdicts_reach_the_cards(cards: list[Card]) -> None:
    card = next(card for card in cards if card.name == "winner-synthetic")
    assert card.verdict is Verdict.WINNER
    assert card.speedup is not None
    assert card.speedup.low > 1.02


def test_numbers_of_an_address_are_small_and_whole() -> None:
    assert [number(text) for text in ("4", "", "-1", "1.5", "٣", "9" * 40)] == [4, 0, 0, 0, 0, 0]


def test_a_recording_that_failed_says_why(winner_run: Run) -> None:
    failed = {"dflash": DraftTrees(prompt_id="p", steps=[], problem="the engine <died>")}
    page = str(trees_page(replace(winner_run, trees=failed), {}))
    assert "Not recorded: the engine <died>." in page
    assert "No draft trees" in str(trees_page(replace(winner_run, trees={}), {}))


def test_a_long_list_begins_with_its_newest(cards: list[Card]) -> None:
    many = [cards[0].model_copy(update={"name": f"run-{number}"}) for number in range(FIRST + 7)]
    short, whole = (str(runs_page(Path("runs"), many, set(), query)) for query in ({}, {"show": "all"}))
    assert short.count("href='/runs/") == FIRST
    assert "7 more" in short
    assert whole.count("href='/runs/") == FIRST + 7
    assert "more" not in whole
