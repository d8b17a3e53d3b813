"""How arms behave as more requests run at once."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence

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
from dashboards.text import bounds, tok_s
from dashboards.theme import TEXT, Styles
from orchestrator.records import ArmSummary

_HEIGHT, _PLOT_PX = 420, 330


def throughput_by_concurrency(
    summaries: Sequence[ArmSummary], styles: Styles, baseline: str | None = None
) -> go.Figure:
    """Output tokens a second of all requests together against how many run at once, a line an arm. Where an arm's line
    crosses the one of `baseline`, a mark."""
    lines: dict[str, list[ArmSummary]] = defaultdict(list)
    for summary in sorted(summaries, key=lambda s: s.concurrency):
        lines[summary.arm].append(summary)
    shown = [name for name in styles if name in lines]
    figure = canvas(_HEIGHT, styles, right=label_width([styles[name].label for name in shown]))
    top = 1.08 * max((s.output_tok_s.high for s in summaries), default=1.0)
    points = sorted({s.concurrency for s in summaries}) or [1]
    end_labels(figure, [_line(figure, name, lines[name], styles) for name in shown], top / _PLOT_PX)
    for name in shown:
        if baseline in lines and name != baseline:
            _mark_crossing(figure, crossovers(lines[name], lines[baseline]), styles[name].label, styles[baseline].label)
    figure.update_xaxes(
        type="log", title_text="Requests at once", tickvals=points, ticktext=[str(p) for p in points], showgrid=False
    )
    figure.update_xaxes(range=log_range(points[0] / 1.15, points[-1] * 1.15))
    figure.update_yaxes(range=[0, top])
    y_title(figure, "Output speed, tok/s, all requests together")
    return figure


def crossovers(line: Sequence[ArmSummary], other: Sequence[ArmSummary]) -> list[tuple[float, float]]:
    """(requests at once, tok/s) where two lines cross as drawn: straight between measured points, concurrency on a
    logarithmic axis."""
    speeds = {s.concurrency: s.output_tok_s.estimate for s in other}
    shared = [(s.concurrency, s.output_tok_s.estimate, speeds[s.concurrency]) for s in line if s.concurrency in speeds]
    found = []
    for (left, a, b), (right, c, d) in itertools.pairwise(sorted(shared)):
        if (a - b) * (c - d) < 0:
            part = (a - b) / ((a - b) - (c - d))
            found.append((left * (right / left) ** part, a + (c - a) * part))
    return found


def _mark_crossing(figure: go.Figure, places: Sequence[tuple[float, float]], label: str, other: str) -> None:
    """A ring where two lines cross."""
    for at, speed in places:
        figure.add_scatter(
            x=[at],
            y=[speed],
            mode="markers+text",
            marker={"color": TEXT, "size": 14, "symbol": "circle-open", "line": {"width": 1.5}},
            text=[f"{at:.1f}" if at < 10 else str(math.floor(at))],
            textposition="bottom center",
            textfont={"color": TEXT, "size": 11},
            name="crossover",
            hovertext=[hover(f"{label} crosses {other}", f"near {at:.1f} at once, between measured points")],
            hoverinfo="text",
        )


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
