"""Figures of several concurrencies, of limits and of a run's outputs."""

import json
import re
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from dashboards import figures
from dashboards.run import Run
from dashboards.story import chapters
from dashboards.theme import ArmKey, arm_styles
from orchestrator.outputs import Cliff, Crossing, CurvePoint, Outputs, Payoff, PositionCell, Rate
from orchestrator.records import ArmSummary, Decision, Interval
from tests.dashboards.synthetic import HOSTILE


@pytest.fixture
def decision(load_run_of_many: Run) -> Decision:
    assert load_run_of_many.decision is not None
    return load_run_of_many.decision


def at(template: ArmSummary, concurrency: int, speed: float, budget: int | None = None) -> ArmSummary:
    interval = Interval(estimate=speed, low=speed - 1, high=speed + 1)
    return template.model_copy(update={"concurrency": concurrency, "output_tok_s": interval, "budget": budget})


def near(value: float) -> Interval:
    return Interval(estimate=value, low=0.9 * value, high=1.1 * value)


def point(arm: str, width: int, ms: float, concurrency: int = 1) -> CurvePoint:
    return CurvePoint(
        arm=arm,
        engine="synthetic",
        method="ddtree",
        concurrency=concurrency,
        width=width,
        packed=width * concurrency,
        verify_ms=near(ms),
        step_ms=ms + 10,
    )


def cliff(before: int, after: int, concurrency: int = 1) -> Cliff:
    return Cliff(
        engine="synthetic",
        concurrency=concurrency,
        before=before,
        at=after,
        before_ms=20.0,
        at_ms=40.0,
        jump=0.5,
        name=f"cliff {HOSTILE}",
    )


def rate(arm: str, concurrency: int, user: float, card: float, **changes: Any) -> Rate:
    values: dict[str, Any] = {"gpus": 1, "on_front": False, "goodput_rps": None, "goodput_tok_s": None}
    values |= {"usd_per_million": None, "joules_per_token": None} | changes
    return Rate(arm=arm, concurrency=concurrency, tok_s_user=near(user), tok_s_gpu=near(card), **values)


def crossing(arm: str, payoff: Payoff, where: float | None = None) -> Crossing:
    found = near(where) if where else None
    return Crossing(arm=arm, against=HOSTILE, payoff=payoff, concurrency=found, measured_from=1, measured_to=16)


def cell(task: str, start: int, end: int | None, length: float) -> PositionCell:
    return PositionCell(
        arm="dflash",
        concurrency=1,
        task=task,
        start=start,
        end=end,
        steps=50,
        acceptance_length=length,
        by_depth=[0.5],
    )


def named(figure: Any, name: str) -> list[Any]:
    return [trace for trace in figure.data if trace.name == name]


def test_the_verify_curve_holds_its_points_and_its_cliffs(load_run_of_many: Run) -> None:
    points = [point("ddtree-budget=15", 16, 20.0), point("ddtree-budget=31", 32, 40.0), point("dflash", 16, 21.0)]
    figure = figures.verify_curve(points, [cliff(16, 32)], load_run_of_many.styles)
    (arm,) = named(figure, "ddtree-budget=31")
    assert (list(arm.x), list(arm.y)) == ([32], [40.0])
    assert list(arm.error_y.array) == pytest.approx([4.0])
    (mark,) = named(figure, "cliff")
    assert (list(mark.x), list(mark.y), mark.text[1]) == ([16, 32], [20.0, 40.0], "cliff +50 %")


def test_a_cliff_stands_between_the_budgets_that_it_parts(decision: Decision, load_run_of_many: Run) -> None:
    summaries = [s for s in decision.summaries if s.concurrency == 1]
    figure = figures.throughput_by_budget(summaries, load_run_of_many.styles, None, [cliff(16, 32), cliff(2, 5)])
    (mark,) = named(figure, "cliff")
    assert 15 < mark.x[0] < 31
    four = figures.throughput_by_budget(summaries, load_run_of_many.styles, None, [cliff(64, 128, 4)])
    assert [trace.x[0] for trace in named(four, "cliff")] == [mark.x[0]]


def test_payoff_ranges_end_where_an_arm_stops_paying(load_run_of_many: Run) -> None:
    found = [
        crossing("dflash", Payoff.CROSSES, 5.3),
        crossing("ddtree-budget=7", Payoff.THROUGHOUT),
        crossing("ddtree-budget=15", Payoff.NEVER),
        crossing("ddtree-budget=31", Payoff.UNDECIDED),
        crossing("ddtree-budget=63", Payoff.UNDECIDED).model_copy(update={"sure_to": 4}),
    ]
    figure = figures.payoff_ranges(found, load_run_of_many.styles)
    ends = {trace.name: (list(trace.x), trace.text[1]) for trace in figure.data}
    assert ends == {
        "dflash": ([1, 5.3], "until 5.3 (4.8–5.8)"),
        "ddtree-budget=7": ([1, 16], "pays throughout"),
        "ddtree-budget=15": ([1, 1], "never pays"),
        "ddtree-budget=31": ([1, 1], "cannot be told"),
        "ddtree-budget=63": ([1, 4], "up to 4; beyond it cannot be told"),
    }
    (crossed,) = named(figure, "dflash")
    assert list(crossed.error_x.array) == pytest.approx([0, 0.53])


def test_a_crossing_is_a_ring_on_the_line_of_its_arm(decision: Decision, load_run_of_many: Run) -> None:
    found = [crossing("dflash", Payoff.CROSSES, 2**0.5), crossing("ngram", Payoff.NEVER)]
    figure = figures.throughput_by_concurrency(decision.summaries, load_run_of_many.styles, found)
    (ring,) = named(figure, "crossing")
    first, second = (s.output_tok_s.estimate for s in decision.summaries if s.arm == "dflash" and s.concurrency < 4)
    assert list(ring.x) == [2**0.5]
    assert list(ring.y) == pytest.approx([(first + second) / 2]), "half-way on a logarithmic axis"
    assert list(ring.error_x.array) == pytest.approx([0.1 * 2**0.5])
    assert "until 1.4 (1.3–1.6) at once" in ring.hovertext[0]


def test_pareto_holds_the_stored_rates_and_front(load_run_of_many: Run) -> None:
    rates = [rate("dflash", 4, 30, 90, on_front=True), rate("dflash", 1, 50, 50, on_front=True), rate("ngram", 1, 9, 9)]
    figure = figures.pareto(rates, load_run_of_many.styles)
    (line,) = named(figure, "dflash")
    assert (list(line.x), list(line.y), list(line.text)) == ([50, 30], [50, 90], ["1", "4"])
    (front,) = named(figure, "not beaten in both")
    assert (list(front.x), list(front.y)) == ([30, 50], [90, 50])


def test_prices_are_drawn_where_they_are_known(load_run_of_many: Run) -> None:
    rates = [rate("dflash", 1, 1, 1, usd_per_million=2.5), rate("ngram", 1, 1, 1)]
    (bars,) = figures.price_bars(rates, load_run_of_many.styles, figures.USD).data
    assert (list(bars.x), list(bars.text)) == ([2.5], ["$2.50"])
    assert figures.priced(rates, figures.JOULES) == []


def test_positions_are_rows_of_tasks_and_columns_of_tokens(load_run_of_many: Run) -> None:
    cells = [cell("b", 0, 32, 2.0), cell("a", 32, None, 3.0), cell("a", 0, 32, 2.5)]
    (heat,) = figures.acceptance_by_position(cells, load_run_of_many.styles, "dflash").data
    assert (list(heat.x), list(heat.y)) == (["0–32", "from 32"], ["a", "b"])
    assert [list(row) for row in heat.z] == [[2.5, 3.0], [2.0, None]]


def test_the_story_tells_what_the_outputs_hold(load_run_of_many: Run) -> None:
    outputs = Outputs(
        slo={},
        price_per_gpu_hour=2.0,
        curve=[point("dflash", 16, 20.0)],
        cliffs=[],
        crossings=[crossing("dflash", Payoff.NEVER)],
        rates=[rate("dflash", 1, 1, 1, usd_per_million=2.5, joules_per_token=0.1)],
        positions=[],
    )
    keys = {plate.key for chapter in chapters(replace(load_run_of_many, outputs=outputs)) for plate in chapter.plates}
    assert {"curve", "payoff-1", "pareto", "usd", "joules"} <= keys
    without = {plate.key for chapter in chapters(replace(load_run_of_many, outputs=None)) for plate in chapter.plates}
    assert not {"curve", "payoff-1", "pareto", "usd", "joules"} & without
    assert len(without) >= 17


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
    (line,) = figures.goodput_against_limit(curves, load_run_of_many.styles, "tpot", asked=50.0).data
    assert (list(line.x), list(line.y)) == ([0.0, 10.0, 50.0], [0.0, 2.0, 2.0])
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
        figures.pareto([rate(HOSTILE, 1, 5, 5)], styles),
        figures.verify_curve([point(HOSTILE, 16, 20.0)], [cliff(16, 32)], styles),
        figures.payoff_ranges([crossing(HOSTILE, Payoff.CROSSES, 4.0)], styles),
        figures.price_bars([rate(HOSTILE, 1, 5, 5, joules_per_token=1.0)], styles, figures.JOULES),
        figures.acceptance_by_position([cell(HOSTILE, 0, 8, 2.0).model_copy(update={"arm": HOSTILE})], styles, HOSTILE),
        figures.step_time_by_budget([hostile], styles),
        figures.throughput_by_concurrency([hostile], styles, [crossing(HOSTILE, Payoff.CROSSES, 4.0)]),
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
