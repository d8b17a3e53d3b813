"""What the servers said: which of it differs, and between whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dashboards import servers
from dashboards.report import render
from dashboards.run import Run
from dashboards.story.width import width
from orchestrator.records import TrialState


def told(run: Run, settings: dict[str, dict[str, Any]]) -> Run:
    """The run with these settings said by its arms, in all their trials."""
    trials = [
        trial.model_copy(update={"identity": {**trial.identity, "settings": settings.get(trial.arm, {})}})
        for trial in run.trials
    ]
    return replace(run, trials=trials)


def test_what_differs_has_a_column_an_arm_and_the_rest_is_said_once(winner_run: Run) -> None:
    said = servers.words(told(winner_run, {arm: {"page_size": 1, "prefill": "fa3"} for arm in winner_run.styles}))
    assert said.same == {"engine": "synthetic", "version": "0.0-synthetic", "page_size": "1", "prefill": "fa3"}
    assert [style.name for style in said.arms] == list(winner_run.styles)
    budgets = dict(zip((style.name for style in said.arms), said.differ["budget"], strict=True))
    assert (budgets["autoregressive"], budgets["ddtree-budget=31"]) == ("–", "31")


def test_who_says_nothing_has_a_dash_and_who_contradicts_himself_both_words(winner_run: Run) -> None:
    run = told(winner_run, {"dflash": {"attention": "fa3", "weights": "ab" * 32}})
    first = next(trial for trial in run.trials if trial.arm == "dflash")
    first.identity["settings"] = {"attention": "triton", "weights": "ab" * 32}
    said = servers.words(run)
    place = [style.name for style in said.arms].index("dflash")
    assert said.differ["attention"][place] in ("triton / fa3", "fa3 / triton")
    assert said.differ["attention"][place - 1] == "–"
    assert said.differ["weights"][place] == "abababababab"


def test_a_setting_that_says_something_else_than_the_identity_keeps_its_whole_name(winner_run: Run) -> None:
    run = told(winner_run, {arm: {"engine": "synthetic", "version": "9"} for arm in winner_run.styles})
    assert servers.words(run).same == {"engine": "synthetic", "version": "0.0-synthetic", "settings.version": "9"}


def test_only_trials_that_count_are_heard(winner_run: Run) -> None:
    run = told(winner_run, {})
    silent = [trial.model_copy(update={"state": TrialState.FAILED, "identity": {}}) for trial in run.trials]
    assert servers.words(replace(run, trials=silent)) == servers.Words([], {}, {})


def test_a_policy_is_told_from_a_budget(winner_run: Run) -> None:
    trial = winner_run.trials[0]
    chosen = trial.model_copy(update={"identity": {"settings": {"policy": "auto"}}})
    fixed = trial.model_copy(update={"identity": {"settings": {"policy": "fixed"}}})
    assert [servers.automatic(each) for each in (chosen, fixed, trial)] == [True, False, False]


def test_a_tree_whose_budget_is_chosen_is_no_point_of_the_line(winner_run: Run) -> None:
    run = told(winner_run, {"ddtree-budget=63": {"policy": "auto"}})
    plates = width(run)
    assert len(plates) == len(width(winner_run)) > 1
    for plate in plates:
        (line,) = [trace for trace in plate.figure.data if trace.name == "ddtree"]
        (level,) = [trace for trace in plate.figure.data if trace.name == "ddtree-budget=63"]
        assert list(line.x) == list(plate.figure.layout.xaxis.tickvals) == [7, 15, 31]
        assert level.y[0] == level.y[1]


def test_the_report_says_it_without_believing_it(winner_run: Run) -> None:
    page = render(told(winner_run, {"dflash": {"attention": "<script>alert(1)</script>"}}))
    assert "What the servers said of themselves" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
