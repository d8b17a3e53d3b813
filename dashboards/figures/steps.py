"""What happens inside a decode step: where its time goes, and how deep its draft is accepted."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from dashboards.figures.canvas import canvas, hover, sample_size, y_title
from dashboards.text import percent, stage_ms
from dashboards.theme import MUTED, STAGES, TEXT, Styles
from orchestrator.records import ArmSummary

_ROW_PX = 34


def step_stack(summaries: Sequence[ArmSummary], styles: Styles) -> go.Figure:
    """Milliseconds of each stage of a decode step, a bar an arm in reading order. Arms without stage times are
    left out. Summaries of one concurrency."""
    shown = [arm for arm in in_order(summaries, styles) if arm.step_ms]
    height = 100 + _ROW_PX * max(len(shown), 1)
    figure = canvas(height, styles, right=56, narrow={"height": height + _ROW_PX * 2})  # its legend takes more lines
    names = [styles[arm.arm].label for arm in shown]
    for stage, (color, _) in STAGES.items():
        if any(stage in arm.step_ms for arm in shown):
            times = [arm.step_ms.get(stage, 0.0) for arm in shown]
            texts = [
                hover(styles[arm.arm].label, f"{stage} {stage_ms(time)} ms a step", sample_size(arm))
                for arm, time in zip(shown, times, strict=True)
            ]
            figure.add_bar(
                x=times, y=names, orientation="h", name=stage, marker_color=color, hovertext=texts, hoverinfo="text"
            )
    totals = [sum(arm.step_ms.get(stage, 0.0) for stage in STAGES) for arm in shown]
    for name, total in zip(names, totals, strict=True):
        figure.add_annotation(
            x=total,
            y=name,
            text=stage_ms(total),
            xanchor="left",
            xshift=4,
            showarrow=False,
            font={"color": TEXT, "size": 12},
        )
    figure.update_xaxes(title_text="Time of a decode step, ms", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", showgrid=False, tickfont={"color": TEXT, "size": 12})
    legend = {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"}
    figure.update_layout(barmode="stack", bargap=0.35, showlegend=True, legend=legend, margin_t=34)
    return figure


def acceptance_by_depth(summaries: Sequence[ArmSummary], styles: Styles) -> go.Figure:
    """The share of steps that accept at least k draft tokens, a line an arm. Summaries of one concurrency."""
    figure = canvas(360, styles, narrow=LEGEND_BELOW)
    for arm in in_order(summaries, styles):
        style, shares = styles[arm.arm], arm.acceptance_by_depth
        if not shares:
            continue
        depths = list(range(1, len(shares) + 1))
        texts = [
            hover(style.label, f"{percent(share, 1)} of steps accept {k} or more draft tokens", sample_size(arm))
            for k, share in zip(depths, shares, strict=True)
        ]
        figure.add_scatter(
            x=depths,
            y=shares,
            mode="lines+markers",
            line={"color": style.color, "width": 2, "dash": style.dash},
            marker={"symbol": style.symbol, "size": 6},
            name=style.label,
            hovertext=texts,
            hoverinfo="text",
        )
    figure.update_xaxes(title_text="Depth k, draft tokens", dtick=_depth_tick(summaries), showgrid=False)
    figure.update_yaxes(range=[0, 1.02], tickformat=".0%")
    figure.update_layout(showlegend=True, legend=LEGEND_TOP_RIGHT)
    y_title(figure, "Steps that accept at least k draft tokens")
    return figure


LEGEND_TOP_RIGHT = {"x": 1, "y": 1, "xanchor": "right", "yanchor": "top", "font": {"color": MUTED}}
LEGEND_BELOW = {
    "legend": {"orientation": "h", "x": 0, "y": -0.24, "xanchor": "left", "yanchor": "top"},
    "height": 430,
}
"""On a narrow page the corner of a plot is too small for a legend."""


def in_order(summaries: Sequence[ArmSummary], styles: Styles) -> list[ArmSummary]:
    """Summaries in the reading order of `styles`."""
    order = list(styles)
    return sorted(summaries, key=lambda arm: order.index(arm.arm))


def _depth_tick(summaries: Sequence[ArmSummary]) -> int:
    deepest = max((len(arm.acceptance_by_depth) for arm in summaries), default=1)
    return max(1, round(deepest / 8))
