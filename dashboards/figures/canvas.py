"""What every figure shares: its frame, its axes, its labels at the ends of lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import plotly.graph_objects as go

from dashboards.text import count
from dashboards.theme import FONT, MUTED, RULE, SURFACE, TEXT, Styles, exchange
from orchestrator.records import ArmSummary, Interval

LINE_PX = 16
"""Height of a line of label text."""

_AXIS = {
    "gridcolor": RULE,
    "linecolor": RULE,
    "zeroline": False,
    "ticks": "outside",
    "ticklen": 5,
    "tickcolor": "rgba(0,0,0,0)",
    "automargin": True,
    "tickfont": {"color": MUTED, "size": 12},
    "title": {"font": {"color": MUTED, "size": 12}, "standoff": 10},
}
_FRAME = {
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "font": {"family": FONT, "size": 13, "color": TEXT},
    "hoverlabel": {"bgcolor": SURFACE, "bordercolor": MUTED, "font": {"color": TEXT, "size": 12}, "align": "left"},
    "dragmode": False,
    "hovermode": "closest",
    "showlegend": False,
    "legend": {"font": {"size": 12}, "bgcolor": "rgba(0,0,0,0)"},
    "xaxis": _AXIS,
    "yaxis": _AXIS,
}


@dataclass(frozen=True)
class EndLabel:
    """A label beside the end of a line: `y` in data units."""

    y: float
    text: str
    color: str


def canvas(height: int, styles: Styles, *, right: int = 16, narrow: dict[str, Any] | None = None) -> go.Figure:
    """An empty figure of `height` pixels. `narrow` holds layout values that a page sets below 560 pixels of width."""
    return go.Figure(
        layout={
            "template": {"layout": _FRAME},
            "height": height,
            "margin": {"l": 8, "r": right, "t": 34, "b": 8},
            "meta": {"dark": exchange(styles), "narrow": narrow or {}},
        }
    )


@dataclass(frozen=True)
class Slider:
    """What a reader moves under a figure. `kind` limit: a line at x, from 0 to `most`. `kind` budget: nodes after the
    first `value` go, and `says` has a sentence for each value."""

    kind: str
    label: str
    most: float
    step: float
    value: float
    says: tuple[str, ...] = ()


def add_slider(figure: go.Figure, slider: Slider) -> None:
    """Leave word of a slider for the page that draws the figure."""
    figure.update_layout(meta={**figure.layout.meta, "slider": asdict(slider)})


def y_title(figure: go.Figure, text: str) -> None:
    """The y axis' title, written horizontally above the plot where it is read first."""
    figure.add_annotation(
        text=text,
        x=0,
        y=1,
        xref="paper",
        yref="paper",
        xanchor="left",
        yanchor="bottom",
        yshift=8,
        showarrow=False,
        font={"color": MUTED, "size": 12},
    )


def end_labels(figure: go.Figure, labels: Sequence[EndLabel], units_per_px: float) -> None:
    """Write labels right of the plot, each at its line's end or as near as the others allow."""
    places = spread([label.y for label in labels], LINE_PX * units_per_px)
    for label, place in zip(labels, places, strict=True):
        figure.add_annotation(
            text=label.text,
            x=1,
            y=place,
            xref="paper",
            yref="y",
            xanchor="left",
            yanchor="middle",
            xshift=6,
            showarrow=False,
            font={"color": label.color, "size": 12},
        )


def spread(values: Sequence[float], gap: float) -> list[float]:
    """Places at least `gap` apart, in the order of `values` and as near to them as a cluster's mean allows."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    clusters: list[list[int]] = []
    for index in order:
        clusters.append([index])
        while len(clusters) > 1 and _start(clusters[-1], values, gap) < _end(clusters[-2], values, gap) + gap:
            clusters[-2:] = [clusters[-2] + clusters[-1]]
    places = [0.0] * len(values)
    for cluster in clusters:
        for rank, index in enumerate(cluster):
            places[index] = _start(cluster, values, gap) + rank * gap
    return places


def _start(cluster: list[int], values: Sequence[float], gap: float) -> float:
    return sum(values[i] for i in cluster) / len(cluster) - gap * (len(cluster) - 1) / 2


def _end(cluster: list[int], values: Sequence[float], gap: float) -> float:
    return _start(cluster, values, gap) + gap * (len(cluster) - 1)


def label_width(labels: Sequence[str]) -> int:
    """Pixels that the longest of these labels takes, at 12 pixels of text."""
    return max((7 * len(label) + 2 * sum(map(str.isupper, label)) for label in labels), default=0) + 14


def hover(title: str, *lines: str) -> str:
    """A hover's text: `title` (safe already) in bold, then its lines."""
    return "<br>".join([f"<b>{title}</b>", *lines])


def sample_size(arm: ArmSummary) -> str:
    """What an arm's numbers rest on."""
    return f"n = {count(arm.requests, 'request')} in {count(arm.trials, 'trial')}"


def error_bars(values: Sequence[Interval], color: str, width: int = 0) -> dict[str, Any]:
    """Error bars from the estimates to the ends of the intervals."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [value.high - value.estimate for value in values],
        "arrayminus": [value.estimate - value.low for value in values],
        "color": color,
        "thickness": 1.5,
        "width": width,
    }


def band(figure: go.Figure, x: Sequence[float], low: Sequence[float], high: Sequence[float], color: str) -> None:
    """The area between the ends of intervals."""
    figure.add_scatter(
        x=[*x, *reversed(x)],
        y=[*low, *reversed(high)],
        mode="lines",
        fill="toself",
        fillcolor=color,
        line={"width": 0, "color": color},
        opacity=0.15,
        hoverinfo="skip",
        name="interval",
    )


def log_range(low: float, high: float) -> list[float]:
    """A range for a logarithmic axis."""
    return [math.log10(low), math.log10(high)]
