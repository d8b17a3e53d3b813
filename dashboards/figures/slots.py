"""When what ran where, and what the machine did meanwhile. Both figures share their time axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from dashboards.figures.canvas import canvas, hover
from dashboards.text import elide, plain
from dashboards.theme import MUTED, SURFACE, TEXT, Styles
from orchestrator.records import TrialRecord, TrialState

_AXIS_TITLE = "Minutes since the first trial began"
_LEFT_PX = 76
_SLOT_PX, _PANEL_PX = 46, 84
_PATTERNS = {TrialState.VALID: "", TrialState.STARTED: ".", TrialState.INVALID: "/", TrialState.FAILED: "x"}


@dataclass(frozen=True)
class Gauge:
    """A telemetry column: its title and what its values are divided by for display."""

    column: str
    title: str
    divisor: float = 1.0


GAUGES = (
    Gauge("cpu_percent", "CPU, %"),
    Gauge("other_cpu_cores", "Others, cores"),
    Gauge("rss_bytes", "Engine, GiB", 2**30),
    Gauge("available_bytes", "Free, GiB", 2**30),
    Gauge("gpu_sm_clock_mhz", "GPU, MHz"),
    Gauge("gpu_power_w", "GPU, W"),
    Gauge("gpu_temperature_c", "GPU, °C"),
    Gauge("gpu_throttle_reasons", "Throttle, mask"),
)


def run_start(trials: Sequence[TrialRecord]) -> datetime:
    """When the first trial began."""
    return min(datetime.fromisoformat(trial.started_at) for trial in trials)


def minutes_after(start: datetime, trial: TrialRecord) -> float:
    """Minutes from `start` to the trial's beginning."""
    return (datetime.fromisoformat(trial.started_at) - start).total_seconds() / 60


def run_minutes(trials: Sequence[TrialRecord]) -> float:
    """Minutes from the first trial's beginning to the last one's end: the width of both figures."""
    start = run_start(trials) if trials else None
    return max((minutes_after(start, trial) + trial.duration / 60 for trial in trials if start), default=0.0)


def slot_timeline(trials: Sequence[TrialRecord], styles: Styles) -> go.Figure:
    """A bar a trial on its slot's line, in minutes since the first trial began. Trials that do not count are
    hatched."""
    slots, start = sorted({trial.slot for trial in trials}), run_start(trials)
    plot = _SLOT_PX * max(len(slots), 1)
    figure = canvas(118 + plot, styles, narrow=_legend_under(70 + plot, len({trial.arm for trial in trials})))
    for name, style in styles.items():
        mine = [trial for trial in trials if trial.arm == name]
        if mine:
            figure.add_bar(
                base=[minutes_after(start, t) for t in mine],
                x=[t.duration / 60 for t in mine],
                y=[_slot_label(t.slot) for t in mine],
                orientation="h",
                name=style.label,
                marker={
                    "color": style.color,
                    "line": {"color": SURFACE, "width": 1},
                    "pattern": {"shape": [_PATTERNS[t.state] for t in mine], "fillmode": "overlay", "fgcolor": SURFACE},
                },
                text=[style.short] * len(mine),
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
                textfont={"color": SURFACE, "size": 11},
                hovertext=[_hover(t, style.label) for t in mine],
                hoverinfo="text",
            )
    figure.update_xaxes(title_text=_AXIS_TITLE, range=[0, run_minutes(trials)], showgrid=False)
    figure.update_yaxes(showgrid=False, autorange="reversed", tickfont={"color": TEXT, "size": 12}, automargin=False)
    legend = {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"}
    figure.update_layout(barmode="overlay", bargap=0.3, showlegend=True, legend=legend)
    figure.update_layout(uniformtext={"mode": "hide", "minsize": 9}, margin={"l": _LEFT_PX, "t": 48})
    return figure


def telemetry_strip(telemetry: pd.DataFrame, styles: Styles, minutes: float) -> go.Figure:
    """Telemetry of a run of `minutes`, a panel a gauge that has values. `telemetry` has columns trial, arm, slot,
    minutes (since the first trial began) and those of telemetry.parquet."""
    gauges = [g for g in GAUGES if g.column in telemetry and telemetry[g.column].notna().any()]
    panels = max(len(gauges), 1)
    figure = canvas(60 + _PANEL_PX * panels, styles)
    figure.set_subplots(rows=panels, cols=1, shared_xaxes=True, vertical_spacing=0.36 / panels)
    for panel, gauge in enumerate(gauges, start=1):
        _panel(figure, panel, gauge, telemetry, styles)
    figure.update_xaxes(showgrid=False, range=[0, minutes])
    figure.update_xaxes(title_text=_AXIS_TITLE, row=panels)
    figure.update_layout(margin={"l": _LEFT_PX, "t": 26})
    return figure


def _panel(figure: go.Figure, panel: int, gauge: Gauge, telemetry: pd.DataFrame, styles: Styles) -> None:
    for arm, own in telemetry.groupby("arm", sort=False):
        style = styles[str(arm)]
        x, y = _broken_line(own, gauge)
        figure.add_scatter(
            x=x,
            y=y,
            mode="lines",
            connectgaps=False,
            line={"color": style.color, "width": 1.5},
            name=style.label,
            hovertemplate=hover("%{fullData.name}", f"{gauge.title} %{{y:,.4~g}}<extra></extra>"),
            row=panel,
            col=1,
        )
    top = 1.15 * float(telemetry[gauge.column].max()) / gauge.divisor
    figure.update_yaxes(range=[0, top or 1], nticks=4, automargin=False, row=panel)
    figure.add_annotation(
        text=gauge.title,
        x=0,
        y=1,
        xref="paper",
        yref=f"y{panel if panel > 1 else ''} domain",
        xanchor="left",
        yanchor="bottom",
        yshift=2,
        showarrow=False,
        font={"color": MUTED, "size": 12},
    )


def _broken_line(own: pd.DataFrame, gauge: Gauge) -> tuple[list[float | None], list[float | None]]:
    """An arm's samples as one line with a gap after each trial: one trace an arm draws far faster than one a trial."""
    x: list[float | None] = []
    y: list[float | None] = []
    for _, trial in own.groupby("trial", sort=False):
        x += [*trial["minutes"].tolist(), None]
        y += [*(trial[gauge.column] / gauge.divisor).tolist(), None]
    return x, y


def _legend_under(height: int, rows: int) -> dict[str, Any]:
    """Layout of a narrow page: the legend, an arm a row, under a figure of `height` pixels."""
    room = 20 * rows + 12
    legend = {"yref": "container", "y": 0, "yanchor": "bottom", "maxheight": room}
    return {"height": height + room, "legend": legend, "margin": {"t": 8, "b": room + 48}}


def _slot_label(slot: str) -> str:
    return plain(elide(slot, 10))


def _hover(trial: TrialRecord, label: str) -> str:
    lines = [f"block {trial.block}, {trial.concurrency} at once, {trial.duration:.1f} s on {plain(trial.slot)}"]
    if trial.state is not TrialState.VALID:
        lines.append(plain(f"{trial.state}: {trial.reason}" if trial.reason else trial.state))
    return hover(label, *lines)
