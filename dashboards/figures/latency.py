"""What a user waits for: percentiles, distributions, and each prompt against the baseline.

`measured` frames are requests as orchestrator.metrics.measure returns them: seconds, drawn here in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from dashboards.figures.canvas import canvas, hover, log_range, sample_size, y_title
from dashboards.figures.steps import LEGEND_BELOW, in_order
from dashboards.text import count, ms, plain, ratio
from dashboards.theme import MUTED, SURFACE, TEXT, Styles
from orchestrator.records import ArmSummary

_ROW_PX = 26
_MOST_POINTS = 400
_MOST_PAIRS = 800
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
TITLES = {"ttft": "Time to first token, ms", "tpot": "Time per output token, ms", "e2e": "Whole request, ms"}


def latency_percentiles(summaries: Sequence[ArmSummary], styles: Styles, key: str) -> go.Figure:
    """p50 (filled) and p90 (open), a row an arm; `key` is ttft, tpot or e2e. Summaries of one concurrency."""
    rows = in_order(summaries, styles)
    figure = canvas(80 + _ROW_PX * max(len(rows), 1), styles)
    for arm in rows:
        _dumbbell(figure, arm, key, styles)
    figure.update_xaxes(title_text=f"{TITLES[key]}:  ● p50  ○ p90", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", showgrid=False, tickfont={"color": TEXT, "size": 12})
    figure.update_layout(margin_t=8)
    return figure


def latency_cdf(measured: pd.DataFrame, styles: Styles, column: str) -> go.Figure:
    """The share of requests within a latency, a line an arm; `column` is ttft, tpot or e2e. More than 400
    requests are thinned to evenly spaced ranks."""
    figure = canvas(430, styles)
    for name, style in styles.items():
        values = (1e3 * measured.loc[measured["arm"] == name, column]).dropna().sort_values().tolist()
        if not values:
            continue
        ranks = _ranks(len(values))
        shares = [(rank + 1) / len(values) for rank in ranks]
        figure.add_scatter(
            x=[values[rank] for rank in ranks],
            y=shares,
            mode="lines",
            line={"color": style.color, "width": 2, "shape": "hv"},
            name=style.label,
            hovertemplate=hover(
                "%{fullData.name}",
                "%{y:.0%} within %{x:.1f} ms",
                f"n = {count(len(values), 'request')}<extra></extra>",
            ),
        )
    figure.update_xaxes(title_text=TITLES[column])
    figure.update_yaxes(range=[0, 1.02], tickformat=".0%", tickvals=[0, 0.25, 0.5, 0.75, 0.9, 1])
    figure.update_layout(showlegend=True, **LEGEND_BELOW)
    y_title(figure, "Requests within")
    return figure


def paired_scatter(measured: pd.DataFrame, styles: Styles, arm: str, baseline: str) -> go.Figure:
    """Each prompt's time per token under `arm` against the same prompt's under `baseline`, one symbol a task. Points
    below the diagonal were faster. More than 800 pairs are thinned evenly. Requests of one concurrency."""
    every = paired_times(measured, arm, baseline)
    pairs = every.iloc[:: -(-len(every) // _MOST_PAIRS)] if len(every) else every
    figure = canvas(400, styles, narrow={"legend": {"y": -0.2}})
    if pairs.empty:
        return figure
    low = float(pairs[["x", "y"]].min().min()) / 1.15
    high = float(pairs[["x", "y"]].max().max()) * 1.15
    for factor, dash in ((1, "solid"), (2, "dot")):
        figure.add_scatter(
            x=[low * factor, high * factor],
            y=[low, high],
            mode="lines",
            line={"color": MUTED, "width": 1, "dash": dash},
            name="equal" if factor == 1 else "twice as fast",
            hoverinfo="skip",
            showlegend=False,
        )
    style = styles[arm]
    for number, (task, group) in enumerate(pairs.groupby("task", sort=True)):
        texts = [
            hover(
                plain(row["prompt_id"]),
                f"{ms(row['y'])} ms a token, {plain(baseline)} {ms(row['x'])} ms ({ratio(row['x'] / row['y'])})",
                f"task {plain(task)}, n = {count(len(every), 'prompt')}",
            )
            for row in group.to_dict("records")
        ]
        figure.add_scatter(
            x=group["x"].tolist(),
            y=group["y"].tolist(),
            mode="markers",
            marker={
                "symbol": _SYMBOLS[number % len(_SYMBOLS)],
                "color": style.color,
                "size": 9,
                "opacity": 0.8,
                "line": {"color": SURFACE, "width": 1},
            },
            name=plain(task),
            hovertext=texts,
            hoverinfo="text",
        )
    ticks = _log_ticks(low, high)
    figure.update_xaxes(title_text=f"{styles[baseline].label}, ms a token")
    for axes in (figure.update_xaxes, figure.update_yaxes):
        axes(type="log", range=log_range(low, high), tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    legend = {"orientation": "h", "x": 0, "y": -0.16, "yanchor": "top"}
    figure.update_layout(showlegend=True, legend=legend, plot_bgcolor="rgba(0,0,0,0)")
    y_title(figure, f"{style.label}, ms a token")
    return figure


def paired_times(measured: pd.DataFrame, arm: str, baseline: str) -> pd.DataFrame:
    """Columns prompt_id, task, x (the baseline's TPOT in ms), y (the arm's): a row a request that both ran."""
    keys = ["prompt_id", "task", "block"]
    told = measured[measured["tpot"] > 0]  # an answer that came in one piece has no time per token
    times = told.assign(ms=1e3 * told["tpot"])
    left = times.loc[times["arm"] == baseline, [*keys, "ms"]].rename(columns={"ms": "x"})
    right = times.loc[times["arm"] == arm, [*keys, "ms"]].rename(columns={"ms": "y"})
    return left.merge(right, on=keys)


def _dumbbell(figure: go.Figure, arm: ArmSummary, key: str, styles: Styles) -> None:
    style = styles[arm.arm]
    values = [getattr(arm, f"{key}_ms_p50"), getattr(arm, f"{key}_ms_p90")]
    figure.add_scatter(
        x=values,
        y=[style.label] * 2,
        mode="lines+markers",
        line={"color": style.color, "width": 2},
        marker={"color": [style.color, SURFACE], "size": 10, "line": {"color": style.color, "width": 2}},
        name=style.label,
        hovertext=[
            hover(style.label, f"{name} {ms(value)} ms", sample_size(arm))
            for name, value in zip(("p50", "p90"), values, strict=True)
        ],
        hoverinfo="text",
    )


def _ranks(size: int) -> list[int]:
    if size <= _MOST_POINTS:
        return list(range(size))
    return [round(i * (size - 1) / (_MOST_POINTS - 1)) for i in range(_MOST_POINTS)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Round values between the ends: few a decade on a wide axis, evenly spaced ones on a narrow axis."""
    if high / low > 3:
        bases = (1, 2, 5) if high / low > 15 else (1, 1.5, 2, 3, 5, 7)
        candidates = [base * 10.0**power for power in range(-4, 7) for base in bases]
    else:
        rough = (high - low) / 4
        unit = 10 ** math.floor(math.log10(rough))
        step = next(unit * base for base in (1, 2, 5, 10) if unit * base >= rough)
        candidates = [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return [tick for tick in candidates if low <= tick <= high]
