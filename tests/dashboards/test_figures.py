import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards import figures
from dashboards.figures.canvas import spread
from dashboards.figures.latency import paired_times
from dashboards.run import Run
from dashboards.theme import STAGES, ArmKey, arm_styles
from orchestrator.metrics import by_task, measure
from orchestrator.records import ArmSummary, Comparison, Decision, Interval

TREES = [7, 15, 31, 63]
HOSTILE = "<a href='https://example.invalid'>x</a></script>&%{y}"


def strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def interval(estimate: float) -> Interval:
    return Interval(estimate=estimate, low=0.9 * estimate, high=1.1 * estimate)


def comparison(arm: str) -> Comparison:
    return Comparison(
        arm=arm,
        baseline=HOSTILE,
        concurrency=1,
        prompts=16,
        speedup=interval(1.4),
        p_value=0.001,
        p_adjusted=0.002,
        selection_speedup=1.4,
        token_weighted_speedup=1.3,
    )


def summary(arm: str, method: str, budget: int | None) -> ArmSummary:
    times = {f"{name}_ms_{p}": 10.0 for name in ("ttft", "tpot", "e2e") for p in ("p50", "p90")}
    return ArmSummary(
        arm=arm,
        engine="synthetic",
        method=method,
        budget=budget,
        concurrency=1,
        trials=4,
        unsettled_trials=0,
        requests=32,
        errors=0,
        tokens=2000,
        output_tok_s=interval(50),
        tpot_ms=interval(20),
        acceptance_length=interval(2.5),
        acceptance_length_macro=2.5,
        acceptance_by_depth=[0.7, 0.4],
        budget_efficiency=0.2,
        goodput_rps=None,
        truncated_share=0.1,
        step_ms={"verify": 30.0},
        identity_error=None,
        **times,
    )


def trace(figure: Any, name: str) -> Any:
    found = [trace for trace in figure.data if trace.name == name]
    assert len(found) == 1
    return found[0]


def ends(bars: Any, values: list[float]) -> list[float]:
    """Low ends, then high ends of error bars around `values`."""
    low = [value - below for value, below in zip(values, bars.arrayminus, strict=True)]
    return low + [value + above for value, above in zip(values, bars.array, strict=True)]


def bounds(intervals: list[Interval]) -> Any:
    return pytest.approx([i.low for i in intervals] + [i.high for i in intervals])


def at(summaries: list[ArmSummary], arm: str) -> ArmSummary:
    return next(summary for summary in summaries if summary.arm == arm)


def test_throughput_by_budget_holds_the_stored_numbers(winner_run: Run, winner_decision: Decision) -> None:
    figure = figures.throughput_by_budget(winner_decision.summaries, winner_run.styles, "ddtree-budget=15")
    stored = [at(winner_decision.summaries, f"ddtree-budget={b}").output_tok_s for b in TREES]
    line = trace(figure, "ddtree")
    assert list(line.x) == TREES
    assert list(line.y) == [value.estimate for value in stored]
    assert ends(line.error_y, list(line.y)) == bounds(stored)
    plain = at(winner_decision.summaries, "autoregressive").output_tok_s.estimate
    assert list(trace(figure, "autoregressive").y) == [plain, plain]
    mark = trace(figure, "winner")
    assert (mark.x[0], mark.y[0]) == (15, stored[1].estimate)


def test_bands_span_the_intervals(winner_run: Run, winner_decision: Decision) -> None:
    figure = figures.acceptance_by_budget(winner_decision.summaries, winner_run.styles)
    stored = [at(winner_decision.summaries, f"ddtree-budget={b}").acceptance_length for b in TREES]
    band = next(t for t in figure.data if t.name == "interval" and len(t.x) == 2 * len(TREES))
    assert list(band.y) == [v.low for v in stored] + [v.high for v in reversed(stored)]
    assert "winner" not in {t.name for t in figure.data}


def test_arms_without_a_tree_are_labelled_at_their_line(winner_run: Run, winner_decision: Decision) -> None:
    figure = figures.throughput_by_budget(winner_decision.summaries, winner_run.styles)
    labels = {a.text for a in figure.layout.annotations}
    assert {"autoregressive", "dflash", "ddtree"} <= labels


def test_trees_with_and_without_a_chain_are_two_lines() -> None:
    arms = [("ddtree-budget=7", 7), ("ddtree-budget=15", 15), ("ddtree-budget=7-chain", 7)]
    summaries = [summary(name, "ddtree", budget) for name, budget in arms]
    styles = arm_styles(ArmKey(name, "ddtree", budget) for name, budget in arms)
    figure = figures.throughput_by_budget(summaries, styles)
    assert list(trace(figure, "ddtree").x) == [7, 15]
    assert list(trace(figure, "ddtree-chain").x) == [7]


def test_a_tree_without_a_budget_is_a_level_and_no_point_of_the_line() -> None:
    arms = [("ddtree-budget=7", 7), ("ddtree-budget=15", 15), ("ddtree-auto", None)]
    summaries = [summary(name, "ddtree", budget) for name, budget in arms]
    styles = arm_styles(ArmKey(name, "ddtree", budget) for name, budget in arms)
    figure = figures.throughput_by_budget(summaries, styles, "ddtree-auto")
    assert list(trace(figure, "ddtree").x) == [7, 15]
    level = trace(figure, "ddtree-auto")
    assert level.y[0] == level.y[1] == summaries[-1].output_tok_s.estimate
    assert list(figure.layout.xaxis.tickvals) == [7, 15]
    assert "winner" not in {t.name for t in figure.data}


def test_forest_holds_the_comparisons_fastest_on_top(winner_run: Run, winner_decision: Decision) -> None:
    comparisons = winner_decision.points[0].comparisons
    figure = figures.speedup_forest(comparisons, winner_run.styles, 0.02, winner_decision.arm)
    for comparison in comparisons:
        row = trace(figure, comparison.arm)
        assert list(row.x) == [comparison.speedup.estimate]
        assert ends(row.error_x, list(row.x)) == bounds([comparison.speedup])
        assert f"n = {comparison.prompts} held-out prompts" in row.hovertext[0]
    fastest = max(comparisons, key=lambda c: c.speedup.estimate)
    assert figure.layout.yaxis.tickvals[-1] == fastest.arm
    lines = {shape.x0 for shape in figure.layout.shapes if shape.type == "line"}
    assert lines == {1, 1.02}


def test_forest_tells_the_winner_from_the_others(winner_run: Run, winner_decision: Decision) -> None:
    comparisons = winner_decision.points[0].comparisons
    with_winner = figures.speedup_forest(comparisons, winner_run.styles, 0.02, "dflash")
    without = figures.speedup_forest(comparisons, winner_run.styles, 0.02)
    assert trace(with_winner, "dflash").marker.color != winner_run.styles["dflash"].color
    assert trace(without, "dflash").marker.color == winner_run.styles["dflash"].color


def test_step_stack_holds_each_stage_in_order_of_budget(winner_run: Run, winner_decision: Decision) -> None:
    figure = figures.step_stack(winner_decision.summaries, winner_run.styles)
    assert [t.name for t in figure.data] == list(STAGES)
    arms = list(trace(figure, "verify").y)
    assert arms == ["autoregressive", "dflash", *(f"ddtree-budget={b}" for b in TREES)]
    for stage in STAGES:
        assert list(trace(figure, stage).x) == [at(winner_decision.summaries, a).step_ms[stage] for a in arms]


def test_arms_without_stage_times_are_left_out(winner_run: Run, winner_decision: Decision) -> None:
    summaries = [s.model_copy(update={"step_ms": {}}) if s.arm == "dflash" else s for s in winner_decision.summaries]
    assert "dflash" not in trace(figures.step_stack(summaries, winner_run.styles), "verify").y


def test_acceptance_by_depth_holds_the_shares(winner_run: Run, winner_decision: Decision) -> None:
    figure = figures.acceptance_by_depth(winner_decision.summaries, winner_run.styles)
    assert "autoregressive" not in {t.name for t in figure.data}
    stored = at(winner_decision.summaries, "ddtree-budget=31").acceptance_by_depth
    line = trace(figure, "ddtree-budget=31")
    assert list(line.y) == stored
    assert list(line.x) == list(range(1, len(stored) + 1))


@pytest.mark.parametrize("key", ["ttft", "tpot", "e2e"])
def test_percentiles_are_the_stored_ones(winner_run: Run, winner_decision: Decision, key: str) -> None:
    figure = figures.latency_percentiles(winner_decision.summaries, winner_run.styles, key)
    for arm in winner_decision.summaries:
        assert list(trace(figure, arm.arm).x) == [getattr(arm, f"{key}_ms_p50"), getattr(arm, f"{key}_ms_p90")]


def test_cdf_is_the_sorted_requests(winner_run: Run) -> None:
    measured = measure(winner_run.requests)
    line = trace(figures.latency_cdf(measured, winner_run.styles, "tpot"), "dflash")
    values = sorted(1e3 * measured.loc[measured["arm"] == "dflash", "tpot"])
    assert list(line.x) == pytest.approx(values)
    assert line.y[0] == pytest.approx(1 / len(values))
    assert line.y[-1] == 1


def test_cdf_leaves_out_what_never_came_and_thins_many(winner_run: Run) -> None:
    values = [float(n) for n in range(1, 2001)] + [float("nan")]
    frame = pd.DataFrame({"arm": "dflash", "ttft": values})
    line = trace(figures.latency_cdf(frame, winner_run.styles, "ttft"), "dflash")
    assert len(line.x) == 400
    assert (line.x[0], line.x[-1], line.y[-1]) == (1000.0, 2_000_000.0, 1.0)
    assert "n = 2,000 requests" in line.hovertemplate


def test_pairs_are_of_one_prompt(winner_run: Run) -> None:
    measured = measure(winner_run.requests)
    figure = figures.paired_scatter(measured, winner_run.styles, "dflash", "autoregressive")
    drawn = {(x, y) for t in figure.data if t.mode == "markers" for x, y in zip(t.x, t.y, strict=True)}
    wide = measured.pivot(index="prompt_id", columns="arm", values="tpot") * 1e3
    assert drawn == set(zip(wide["autoregressive"], wide["dflash"], strict=True))
    assert {t.name for t in figure.data if t.mode == "markers"} == {"chat", "code", "maths", "rewriting"}


def test_pairs_need_both_arms() -> None:
    row = {"prompt_id": "p", "task": "chat", "block": 0, "tpot": 0.01}
    frame = pd.DataFrame([row | {"arm": "a"}, row | {"arm": "b", "tpot": None}])
    assert paired_times(frame, "a", "b").empty
    frame = pd.DataFrame([row | {"arm": "a"}, row | {"arm": "b", "tpot": 0.0}])
    assert paired_times(frame, "a", "b").empty, "all of b's tokens came at once"


def test_concurrency_lines_hold_every_point(load_run_of_many: Run) -> None:
    assert load_run_of_many.decision is not None
    summaries = load_run_of_many.decision.summaries
    line = trace(figures.throughput_by_concurrency(summaries, load_run_of_many.styles), "dflash")
    stored = sorted((s for s in summaries if s.arm == "dflash"), key=lambda s: s.concurrency)
    assert list(line.x) == [1, 2, 4]
    assert list(line.y) == [s.output_tok_s.estimate for s in stored]
    assert ends(line.error_y, list(line.y)) == bounds([s.output_tok_s for s in stored])


def test_heat_map_holds_the_frame(winner_run: Run) -> None:
    frame = by_task(winner_run.requests)
    heat = figures.acceptance_by_task(frame, winner_run.styles).data[0]
    row, column = list(heat.y).index("ddtree-budget=63"), list(heat.x).index("code")
    cell = frame[(frame["arm"] == "ddtree-budget=63") & (frame["task"] == "code")].iloc[0]
    assert heat.z[row][column] == cell["acceptance_length"]
    assert "n = 8 requests" in heat.hovertext[row][column]


def test_timeline_places_every_trial(load_run_of_many: Run) -> None:
    figure = figures.slot_timeline(load_run_of_many.trials, load_run_of_many.styles)
    assert sum(len(t.x) for t in figure.data) == len(load_run_of_many.trials)
    begins = sorted(base for t in figure.data for base in t.base)
    assert begins[0] == 0
    last = max(base + x for t in figure.data for base, x in zip(t.base, t.x, strict=True))
    assert last == pytest.approx(figures.run_minutes(load_run_of_many.trials))


def test_timeline_hatches_trials_that_do_not_count(load_run_of_many: Run) -> None:
    figure = figures.slot_timeline(load_run_of_many.trials, load_run_of_many.styles)
    assert sorted(trace(figure, "ngram").marker.pattern.shape) == [""] * 9 + ["/"] * 3
    hatched = [text for text in trace(figure, "ngram").hovertext if "invalid: warm-up" in text]
    assert len(hatched) == 3


def test_telemetry_shows_only_gauges_that_were_read(winner_run: Run, load_run_of_many: Run) -> None:
    def titles(run: Run) -> list[str]:
        figure = figures.telemetry_strip(run.telemetry, run.styles, figures.run_minutes(run.trials))
        return [a.text for a in figure.layout.annotations]

    assert titles(winner_run) == ["CPU, %", "Others, cores", "Engine, GiB", "Free, GiB"]
    assert "GPU, MHz" in titles(load_run_of_many)


def test_divergences_are_filled_only_where_they_violate(winner_run: Run) -> None:
    figure = figures.divergence_gaps(winner_run.divergences, winner_run.styles, 0.25)
    drawn = trace(figure, "ddtree-budget=63")
    stored = winner_run.divergences[winner_run.divergences["arm"] == "ddtree-budget=63"]
    assert list(drawn.y) == list(stored["gap"])
    assert [s.endswith("-open") for s in drawn.marker.symbol] == list(stored["near_tie"])


def hostile_figures() -> Iterator[Any]:
    """Every figure, with markup in each name and text it is given."""
    summaries = [summary(HOSTILE, "ddtree", 7), summary("plain", "autoregressive", None)]
    styles = arm_styles(ArmKey(s.arm, s.method, s.budget) for s in summaries)
    numbers = {"prompt_id": HOSTILE, "task": HOSTILE, "block": 0, "ttft": 0.1, "tpot": 0.02}
    measured = pd.DataFrame([numbers | {"arm": HOSTILE}, numbers | {"arm": "plain"}])
    tasks = measured.assign(acceptance_length=2.0, requests=3)
    gap = {"arm": HOSTILE, "prompt_id": HOSTILE, "position": 3, "gap": 0.1, "near_tie": True}
    yield figures.throughput_by_budget(summaries, styles, HOSTILE)
    yield figures.acceptance_by_budget(summaries, styles)
    yield figures.step_stack(summaries, styles)
    yield figures.acceptance_by_depth(summaries, styles)
    yield figures.latency_percentiles(summaries, styles, "tpot")
    yield figures.latency_cdf(measured, styles, "ttft")
    yield figures.paired_scatter(measured, styles, HOSTILE, "plain")
    yield figures.throughput_by_concurrency(summaries, styles)
    yield figures.acceptance_by_task(tasks, styles)
    yield figures.divergence_gaps(pd.DataFrame([gap]), styles, 0.25)
    yield figures.speedup_forest([comparison(HOSTILE)], styles, 0.02, HOSTILE)


@pytest.mark.parametrize("figure", list(hostile_figures()))
def test_markup_in_names_stays_text(figure: Any) -> None:
    for text in strings(json.loads(figure.to_json())):
        tags = set(re.findall(r"<[^>]*>?", text))
        assert tags <= {"<b>", "</b>", "<br>", "<extra>", "</extra>"}, text


@pytest.mark.parametrize("figure", list(hostile_figures()))
def test_names_never_become_a_template(figure: Any) -> None:
    for drawn in figure.data:
        assert "example.invalid" not in str(drawn.hovertemplate)
        assert "example.invalid" not in str(getattr(drawn, "texttemplate", None))


@pytest.mark.parametrize("figure", list(hostile_figures()))
def test_every_colour_has_its_counterpart_on_a_dark_page(figure: Any) -> None:
    document = json.loads(figure.to_json())
    exchange = document["layout"]["meta"].pop("dark")
    used = {text for text in strings(document) if re.fullmatch(r"#[0-9a-f]{6}", text)}
    assert used <= set(exchange)


def test_axes_name_their_units(winner_run: Run, winner_decision: Decision) -> None:
    styles, summaries = winner_run.styles, winner_decision.summaries
    speed = figures.throughput_by_budget(summaries, styles)
    assert speed.layout.xaxis.title.text == "Tree budget, nodes"
    assert "tok/s" in speed.layout.annotations[0].text
    assert figures.step_stack(summaries, styles).layout.xaxis.title.text.endswith("ms")
    assert "ms" in figures.latency_percentiles(summaries, styles, "ttft").layout.xaxis.title.text


@given(st.lists(st.floats(0, 100), max_size=12), st.floats(0.1, 20))
def test_labels_keep_their_order_and_their_distance(values: list[float], gap: float) -> None:
    places = spread(values, gap)
    order = sorted(range(len(values)), key=lambda i: values[i])
    for lower, upper in itertools.pairwise(order):
        assert places[upper] - places[lower] >= gap * (1 - 1e-9) - 1e-9


@given(st.lists(st.integers(0, 20), max_size=8, unique=True))
def test_labels_with_room_stay_where_they_are(values: list[int]) -> None:
    assert spread([float(value) for value in values], 0.5) == [float(value) for value in values]


def test_crowded_labels_are_spread_around_their_mean() -> None:
    assert spread([10.0, 10.0, 50.0], 4.0) == [8.0, 12.0, 50.0]
