"""How arms behave as more requests run at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from dashboards.figures.canvas import (
    EndLabel,
    canvas,
    end_labels,
    error_bars,
    hover,
    label_width,
    log_range,
    sample_size,
    y_title,
)
from dashboards.text import bounds, plain, tok_s
from dashboards.theme import SURFACE, Styles
from orchestrator.outputs import Crossing
from orchestrator.records import ArmSummary

_HEIGHT, _PLOT_PX = 420, 330


def throughput_by_concurrency(
    summaries: Sequence[ArmSummary], styles: Styles, crossings: Sequence[Crossing] = ()
) -> go.Figure:
    """Output tokens a second of all requests together against how many run at once, a line an arm, with a ring on it
    where it stops being faster than what it is held against."""
    lines: dict[str, list[ArmSummary]] = defaultdict(list)
    for summary in sorted(summaries, key=lambda s: s.concurrency):
        lines[summary.arm].append(summary)
    shown = [name for name in styles if name in lines]
    figure = canvas(_HEIGHT, styles, right=label_width([styles[name].label for name in shown]))
    top = 1.08 * max((s.output_tok_s.high for s in summaries), default=1.0)
    points = sorted({s.concurrency for s in summaries}) or [1]
    end_labels(figure, [_line(figure, name, lines[name], styles) for name in shown], top / _PLOT_PX)
    for crossing in crossings:
        if crossing.arm in lines:
            _mark(figure, crossing, lines[crossing.arm], styles)
    figure.update_xaxes(
        type="log", title_text="Requests at once", tickvals=points, ticktext=[str(p) for p in points], showgrid=False
    )
    figure.update_xaxes(range=log_range(points[0] / 1.15, points[-1] * 1.15))
    figure.update_yaxes(range=[0, top])
    y_title(figure, "Output speed, tok/s, all requests together")
    return figure


def _line(figure: go.Figure, name: str, line: Sequence[ArmSummary], styles: Styles) -> EndLabel:
    style = styles[name]
    speeds = [summary.output_tok_s for summary in line]
    texts = [
        hover(
            style.label,
            f"{tok_s(speed.estimate)} tok/s ({bounds(speed, 1)}) at {summary.concurrency} at once",
            sample_size(summary),
        )
        for summary, speed in zip(line, speeds, strict=True)
    ]
    figure.add_scatter(
        x=[summary.concurrency for summary in line],
        y=[speed.estimate for speed in speeds],
        error_y=error_bars(speeds, style.color),
        mode="lines+markers",
        line={"color": style.color, "width": 2, "dash": style.dash},
        marker={"symbol": style.symbol, "size": 8},
        name=style.label,
        hovertext=texts,
        hoverinfo="text",
    )
    return EndLabel(speeds[-1].estimate, style.label, style.color)


def _mark(figure: go.Figure, crossing: Crossing, line: Sequence[ArmSummary], styles: Styles) -> None:
    """A ring at the stored place, as high as the line is drawn there, with the interval of that place."""
    where, style = crossing.concurrency, styles[crossing.arm]
    if where is None:
        return
    measured = [summary.concurrency for summary in line]
    height = np.interp(np.log(where.estimate), np.log(measured), [summary.output_tok_s.estimate for summary in line])
    says = f"faster than {plain(crossing.against)} until {where.estimate:.1f} ({bounds(where, 1)}) at once"
    figure.add_scatter(
        x=[where.estimate],
        y=[float(height)],
        error_x=error_bars([where], style.color, width=5),
        mode="markers+text",
        marker={"symbol": "circle", "size": 13, "color": SURFACE, "line": {"color": style.color, "width": 2.5}},
        text=[f"{where.estimate:.1f}"],
        textposition="bottom center",
        textfont={"color": style.color, "size": 12},
        name="crossing",
        hovertext=[hover(style.label, says)],
        hoverinfo="text",
    )
