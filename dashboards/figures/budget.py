"""A quantity against the tree budget: the trees as a line, every other arm as a reference line."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from dashboards.figures.canvas import (
    EndLabel,
    band,
    canvas,
    end_labels,
    error_bars,
    hover,
    label_width,
    log_range,
    sample_size,
    y_title,
)
from dashboards.text import bounds, elide, plain, stage_ms, tok_s, tokens
from dashboards.theme import ACCENT, MUTED, SURFACE, Styles
from orchestrator.outputs import Cliff
from orchestrator.records import ArmSummary, Interval

HEIGHT, PLOT_PX = 360, 270
"""Pixels of the figure, and about how many of them its plot is high."""


@dataclass(frozen=True)
class Quantity:
    """What is drawn: its axis title, where a summary keeps it, how a value is written."""

    title: str
    unit: str
    digits: int
    of: Callable[[ArmSummary], Interval]
    write: Callable[[float], str]


_SPEED = Quantity("Output speed, tok/s", "tok/s", 1, lambda arm: arm.output_tok_s, tok_s)
_LENGTH = Quantity("Acceptance length, tokens a step", "tokens a step", 2, lambda arm: arm.acceptance_length, tokens)
_STEP = Quantity("Time of a decode step, ms", "ms a step", 2, lambda arm: _step_time(arm), stage_ms)


def throughput_by_budget(
    summaries: Sequence[ArmSummary], styles: Styles, winner: str | None = None, cliffs: Sequence[Cliff] = ()
) -> go.Figure:
    """Output tokens a second against the number of tree nodes. Summaries of one concurrency."""
    return _by_budget(summaries, styles, winner, _SPEED, cliffs)


def acceptance_by_budget(
    summaries: Sequence[ArmSummary], styles: Styles, winner: str | None = None, cliffs: Sequence[Cliff] = ()
) -> go.Figure:
    """Acceptance length against the number of tree nodes. Summaries of one concurrency."""
    return _by_budget(summaries, styles, winner, _LENGTH, cliffs)


def step_time_by_budget(
    summaries: Sequence[ArmSummary], styles: Styles, winner: str | None = None, cliffs: Sequence[Cliff] = ()
) -> go.Figure:
    """Milliseconds of a decode step, its stages together, against the number of tree nodes. The store holds no
    interval of it. Arms without stage times are left out. Summaries of one concurrency."""
    return _by_budget([arm for arm in summaries if arm.step_ms], styles, winner, _STEP, cliffs)


def _step_time(arm: ArmSummary) -> Interval:
    total = sum(arm.step_ms.values())
    return Interval(estimate=total, low=total, high=total)


def _by_budget(
    summaries: Sequence[ArmSummary], styles: Styles, winner: str | None, quantity: Quantity, cliffs: Sequence[Cliff]
) -> go.Figure:
    flats = [arm for arm in summaries if arm.budget is None]
    lines = _tree_lines(summaries)
    figure = canvas(
        HEIGHT, styles, right=label_width([styles[a.arm].label for a in flats] + [name for name, _ in lines])
    )
    budgets = sorted({arm.budget for arm in summaries if arm.budget is not None})
    ends = (min(budgets, default=1) / 1.25, max(budgets, default=1) * 1.25)
    top = 1.1 * max((quantity.of(arm).high for arm in summaries), default=1.0)
    labels = [_reference(figure, arm, styles, quantity, ends) for arm in flats]
    labels += [_line(figure, name, arms, styles, quantity) for name, arms in lines]
    figure.update_xaxes(type="log", title_text="Tree budget, nodes", showgrid=False, range=log_range(*ends))
    figure.update_xaxes(tickvals=budgets, ticktext=[str(budget) for budget in budgets])
    figure.update_yaxes(range=[0, top])
    y_title(figure, quantity.title)
    end_labels(figure, labels, top / PLOT_PX)
    for cliff in cliffs:
        _mark_cliff(figure, cliff, budgets, top)
    for arm in summaries:
        if arm.arm == winner and arm.budget is not None:
            _mark(figure, arm.budget, quantity.of(arm), quantity)
    return figure


def _tree_lines(summaries: Sequence[ArmSummary]) -> list[tuple[str, list[ArmSummary]]]:
    """Arms with a budget, as lines by what is left of their names without the budget."""
    lines: dict[tuple[str, str], list[ArmSummary]] = defaultdict(list)
    for arm in sorted((a for a in summaries if a.budget is not None), key=lambda a: (a.budget or 0, a.arm)):
        rest = arm.arm.replace(f"budget={arm.budget}", "").replace("--", "-").strip("-")
        lines[(arm.engine, rest if rest != arm.arm else arm.method)].append(arm)
    several = len({engine for engine, _ in lines}) > 1
    return [(plain(elide(f"{engine}/{rest}" if several else rest)), arms) for (engine, rest), arms in lines.items()]


def _reference(
    figure: go.Figure, arm: ArmSummary, styles: Styles, quantity: Quantity, ends: tuple[float, float]
) -> EndLabel:
    style, value = styles[arm.arm], quantity.of(arm)
    band(figure, ends, [value.low] * 2, [value.high] * 2, style.color)
    figure.add_scatter(
        x=ends,
        y=[value.estimate] * 2,
        mode="lines",
        line={"color": style.color, "dash": style.dash, "width": 1.5},
        name=style.label,
        hovertext=[_hover(arm, styles, quantity)] * 2,
        hoverinfo="text",
    )
    return EndLabel(value.estimate, style.label, style.color)


def _line(figure: go.Figure, name: str, arms: Sequence[ArmSummary], styles: Styles, quantity: Quantity) -> EndLabel:
    values = [quantity.of(arm) for arm in arms]
    colors = [styles[arm.arm].color for arm in arms]
    budgets = [arm.budget or 0 for arm in arms]
    middle = colors[len(colors) // 2]
    band(figure, budgets, [value.low for value in values], [value.high for value in values], middle)
    figure.add_scatter(
        x=budgets,
        y=[value.estimate for value in values],
        error_y=error_bars(values, middle),
        mode="lines+markers",
        line={"color": middle, "width": 2},
        marker={"color": colors, "size": 9, "line": {"color": SURFACE, "width": 1.5}},
        name=name,
        hovertext=[_hover(arm, styles, quantity) for arm in arms],
        hoverinfo="text",
    )
    return EndLabel(values[-1].estimate, name, middle)


def _mark_cliff(figure: go.Figure, cliff: Cliff, budgets: Sequence[int], top: float) -> None:
    """A line between the two budgets whose verify forwards a cliff of the curve lies between."""
    before, after = (width // cliff.concurrency - 1 for width in (cliff.before, cliff.at))
    if before not in budgets or after not in budgets:
        return
    place = math.sqrt(before * after)
    figure.add_scatter(
        x=[place, place],
        y=[0, 0.97 * top],
        mode="lines+text",
        line={"color": MUTED, "width": 1, "dash": "dot"},
        text=["", "\u00a0cliff"],
        textposition="bottom right",
        textfont={"color": MUTED, "size": 11},
        name="cliff",
        hovertext=[hover("cliff", plain(cliff.name))] * 2,
        hoverinfo="text",
    )


def _mark(figure: go.Figure, budget: int, value: Interval, quantity: Quantity) -> None:
    """A ring around the winner, with its value."""
    figure.add_scatter(
        x=[budget],
        y=[value.estimate],
        mode="markers+text",
        marker={"color": ACCENT, "size": 16, "symbol": "circle-open", "line": {"width": 2}},
        text=[f"<b>{quantity.write(value.estimate)}</b>"],
        textposition="top center",
        textfont={"color": ACCENT, "size": 13},
        cliponaxis=False,
        name="winner",
        hoverinfo="skip",
    )


def _hover(arm: ArmSummary, styles: Styles, quantity: Quantity) -> str:
    value = quantity.of(arm)
    shown = f"{quantity.write(value.estimate)} {quantity.unit}"
    if value.low != value.high:
        shown += f" ({bounds(value, quantity.digits)})"
    return hover(styles[arm.arm].label, shown, sample_size(arm))
