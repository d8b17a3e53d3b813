"""How numbers and foreign text are written, the same in every figure, table and sentence."""

from __future__ import annotations

import html
import math

from orchestrator.records import ArmSummary, Interval

NONE = "–"


def tok_s(value: float) -> str:
    """Tokens a second, one decimal."""
    return _fixed(value, 1)


def ms(value: float) -> str:
    """Milliseconds of a latency, one decimal."""
    return _fixed(value, 1)


def percentile(summary: ArmSummary, latency: str, percent: int) -> str:
    """`ttft`, `tpot` or `e2e` at a percentile, in ms; behind a ~ where the requests are too few to settle it."""
    shown = ms(getattr(summary, f"{latency}_ms_p{percent}"))
    return f"~{shown}" if percent in summary.indicative else shown


def stage_ms(value: float) -> str:
    """Milliseconds of a stage of a decode step, two decimals."""
    return _fixed(value, 2)


def tokens(value: float) -> str:
    """An acceptance length in tokens a step, two decimals."""
    return _fixed(value, 2)


def ratio(value: float) -> str:
    """A speed-up, two decimals and a multiplication sign."""
    return NONE if math.isnan(value) else f"{value:.2f}×"


def percent(value: float, digits: int = 0) -> str:
    """A share of 1 in percent."""
    return NONE if math.isnan(value) else f"{100 * value:.{digits}f} %"


def bounds(interval: Interval, digits: int) -> str:
    """The two ends of an interval: `1.35–1.50`."""
    return f"{_fixed(interval.low, digits)}–{_fixed(interval.high, digits)}"


def count(number: int, noun: str) -> str:
    """`1 trial`, `1,200 trials`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def plain(text: object) -> str:
    """Text for a Plotly label: Plotly reads a small HTML in labels and hovers, so markup in foreign text is escaped."""
    return html.escape(str(text), quote=False).replace("\n", " ")


def elide(text: str, limit: int = 22) -> str:
    """At most `limit` characters, the middle left out: both ends of an arm's name tell it apart."""
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    return f"{text[: limit - 1 - tail]}…{text[-tail:]}"


def _fixed(value: float, digits: int) -> str:
    return NONE if math.isnan(value) else f"{value:,.{digits}f}"
