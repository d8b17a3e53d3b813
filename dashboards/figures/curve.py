"""What a verify forward costs as it gets wider, and where it suddenly costs more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import plotly.graph_objects as go

from dashboards.figures.canvas import canvas, error_bars, hover, log_range, y_title
from dashboards.figures.steps import LEGEND_BELOW
from dashboards.text import bounds, count, percent, plain, stage_ms
from dashboards.theme import MUTED, TEXT, Styles
from orchestrator.outputs import Cliff, CurvePoint


def verify_curve(points: Sequence[CurvePoint], cliffs: Sequence[Cliff], styles: Styles) -> go.Figure:
    """Milliseconds of a verify forward against the tokens packed into it, a line an engine and concurrency, a mark an
    arm, with intervals over trials. Cliffs are marked as they are stored."""
    figure = canvas(430, styles)
    lines: dict[tuple[str, int], list[CurvePoint]] = defaultdict(list)
    for point in sorted(points, key=lambda p: p.packed):
        lines[point.engine, point.concurrency].append(point)
    for own in lines.values():
        line = {"color": MUTED, "width": 1}
        x, y = [p.packed for p in own], [p.verify_ms.estimate for p in own]
        figure.add_scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip", showlegend=False, name="curve")
    for name, style in styles.items():
        mine = [point for point in points if point.arm == name]
        if mine:
            figure.add_scatter(
                x=[point.packed for point in mine],
                y=[point.verify_ms.estimate for point in mine],
                error_y=error_bars([point.verify_ms for point in mine], style.color),
                mode="markers",
                marker={"color": style.color, "symbol": style.symbol, "size": 9},
                name=style.label,
                hovertext=[_hover(point, style.label) for point in mine],
                hoverinfo="text",
            )
    for number, cliff in enumerate(cliffs):
        _mark(figure, cliff, labelled=cliff.at not in {other.at for other in cliffs[:number]})
    packed = sorted({point.packed for point in points}) or [1]
    figure.update_xaxes(type="log", title_text="Tokens in a verify forward: width × requests at once", showgrid=False)
    figure.update_xaxes(range=log_range(packed[0] / 1.2, packed[-1] * 1.2), tickvals=packed)
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(showlegend=True, **LEGEND_BELOW)
    y_title(figure, "Time of a verify forward, ms")
    return figure


def _mark(figure: go.Figure, cliff: Cliff, labelled: bool) -> None:
    """The step itself, drawn over the curve, with how much steeper it is: one label a place has room."""
    name = plain(cliff.name)
    figure.add_scatter(
        x=[cliff.before, cliff.at],
        y=[cliff.before_ms, cliff.at_ms],
        mode="lines+text",
        line={"color": TEXT, "width": 3, "dash": "dot"},
        text=["", f"cliff +{percent(cliff.jump)}" if labelled else ""],
        textposition="top left",
        textfont={"color": TEXT, "size": 11},
        showlegend=False,
        name="cliff",
        hovertext=[hover("cliff", name, f"from {cliff.before} to {cliff.at} tokens")] * 2,
        hoverinfo="text",
    )


def _hover(point: CurvePoint, label: str) -> str:
    time = f"{stage_ms(point.verify_ms.estimate)} ms ({bounds(point.verify_ms, 2)})"
    return hover(
        label,
        f"{time} of a step of {stage_ms(point.step_ms)}",
        f"{count(point.width, 'token')} a request, {point.concurrency} at once",
    )
