"""Figures of several concurrencies and of limits: what the dashboard shows beyond the report."""

import json
import re
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards import figures
from dashboards.figures.budget import cliffs
from dashboards.figures.load import crossovers
from dashboards.figures.pareto import frontier
from dashboards.run import Run
from dashboards.theme import ArmKey, arm_styles
from orchestrator.records import ArmSummary, Decision, Interval
from tests.dashboards.synthetic import HOSTILE


@pytest.fixture
def decision(load_run_of_many: Run) -> Decision:
    assert load_run_of_many.decision is not None
    return load_run_of_many.decision


def at(template: ArmSummary, concurrency: int, speed: float, budget: int | None = None) -> ArmSummary:
    interval = Interval(estimate=speed, low=speed - 1, high=speed + 1)
    return template.model_copy(update={"concurrency": concurrency, "output_tok_s": interval, "budget": budget})


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda p: (float(p[0]), float(p[1])))))
def test_the_frontier_is_what_nothing_beats(points: list[tuple[float, float]]) -> None:
    def beaten(p: tuple[float, float]) -> bool:
        return any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in points)

    assert frontier(points) == sorted({p for p in points if not beaten(p)})


def test_lines_cross_where_they_are_drawn_to(decision: Decision) -> None:
    template = decision.summaries[0]
    rising = [at(template, 1, 10.0), at(template, 4, 40.0)]
    flat = [at(template, 1, 25.0), at(template, 4, 25.0)]
    assert crossovers(rising, flat) == [pytest.approx((2.0, 25.0))]
    assert crossovers(flat, flat) == []
    assert crossovers(rising, [at(template, 1, 5.0), at(template, 4, 6.0)]) == []


def test_crossings_are_marked_only_with_a_baseline(decision: Decision, load_run_of_many: Run) -> None:
    template, styles = decision.summaries[0], load_run_of_many.styles
    names = [template.arm, decision.summaries[-1].arm]
    lines = [
        at(template, 1, 10.0),
        at(template, 4, 40.0),
        *(at(decision.summaries[-1], c, 25.0) for c in (1, 4)),
    ]
    marked = figures.throughput_by_concurrency(lines, styles, names[1])
    assert [trace.text[0] for trace in marked.data if trace.name == "crossover"] == ["2.0"]
    plain = figures.throughput_by_concurrency(lines, styles)
    assert "crossover" not in {trace.name for trace in plain.data}


def test_a_cliff_needs_intervals_apart(decision: Decision) -> None:
    template = decision.summaries[0]
    arms = [at(template, 1, speed, budget) for budget, speed in ((7, 50.0), (15, 49.0), (31, 46.0), (63, 47.5))]
    assert cliffs(arms) == [(15, 31)]


def test_pareto_turns_the_stored_tpot_over(decision: Decision, load_run_of_many: Run) -> None:
    figure = figures.pareto(decision.summaries, load_run_of_many.styles)
    (line,) = [trace for trace in figure.data if trace.name == "dflash"]
    stored = sorted((s for s in decision.summaries if s.arm == "dflash"), key=lambda s: s.concurrency)
    assert list(line.x) == pytest.approx([1000 / s.tpot_ms.estimate for s in stored])
    assert list(line.y) == [s.output_tok_s.estimate for s in stored]
    assert list(line.text) == ["1", "2", "4"]


def test_step_time_is_the_sum_of_the_stages(decision: Decision, load_run_of_many: Run) -> None:
    summaries = [s for s in decision.summaries if s.concurrency == 1]
    figure = figures.step_time_by_budget(summaries, load_run_of_many.styles)
    (line,) = [trace for trace in figure.data if trace.name == "ddtree"]
    stored = {s.budget: sum(s.step_ms.values()) for s in summaries if s.budget}
    assert dict(zip(line.x, line.y, strict=True)) == pytest.approx(stored)


def test_goodput_and_depth_figures_hold_their_frames(load_run_of_many: Run) -> None:
    curves = pd.DataFrame({"arm": "dflash", "limit": "tpot", "ms": [0.0, 10.0], "rps": [0.0, 2.0]})
    (line,) = figures.goodput_against_limit(curves, load_run_of_many.styles, "tpot").data
    assert (list(line.x), list(line.y)) == ([0.0, 10.0], [0.0, 2.0])
    assert len(figures.goodput_against_limit(curves, load_run_of_many.styles, "ttft").data) == 0
    depths = pd.DataFrame({"arm": "dflash", "task": ["a", "a", "b"], "depth": [1, 2, 1], "share": [0.5, 0.2, 0.9]})
    (heat,) = figures.acceptance_by_task_and_depth(depths, load_run_of_many.styles, "dflash").data
    assert [list(row) for row in heat.z] == [[0.5, 0.2], [0.9, None]]


def test_markup_in_names_stays_text(decision: Decision) -> None:
    styles = arm_styles([ArmKey(HOSTILE, "ddtree", 7)])
    hostile = at(decision.summaries[0], 1, 10.0, 7).model_copy(update={"arm": HOSTILE})
    curves = pd.DataFrame({"arm": [HOSTILE], "limit": "tpot", "ms": [1.0], "rps": [1.0]})
    depths = pd.DataFrame({"arm": [HOSTILE], "task": [HOSTILE], "depth": [1], "share": [0.5]})
    for figure in (
        figures.pareto([hostile], styles),
        figures.step_time_by_budget([hostile], styles),
        figures.throughput_by_concurrency([hostile], styles, HOSTILE),
        figures.goodput_against_limit(curves, styles, "tpot"),
        figures.acceptance_by_task_and_depth(depths, styles, HOSTILE),
    ):
        for text in strings(json.loads(figure.to_json())):
            assert set(re.findall(r"<[^>]*>?", text)) <= {"<b>", "</b>", "<br>", "<extra>", "</extra>"}, text
        used = {text for text in strings(figure.to_dict()["data"]) if re.fullmatch(r"#[0-9a-f]{6}", text)}
        assert used <= set(figure.layout.meta["dark"])


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in strings(item)]
    return [text for item in value for text in strings(item)] if isinstance(value, (list, tuple)) else []
