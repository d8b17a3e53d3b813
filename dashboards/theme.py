"""Colours and styles. Every colour of a figure has a counterpart on a dark page; arms look the same in every figure.

Figures are drawn in the light colours and carry the exchange for a dark page in `layout.meta`, so that a page (or a
Dash callback) can follow the reader's setting without asking for another figure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dashboards.text import elide, plain

FONT = "-apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"

TEXT, MUTED, RULE, SURFACE, ACCENT = "#1b1f27", "#5a6372", "#e1e5eb", "#ffffff", "#0b7a5b"
"""Text, secondary text, grid lines, the page, and what marks a winner."""

DARK = {TEXT: "#e7eaef", MUTED: "#a0a9b8", RULE: "#2d333e", SURFACE: "#14171c", ACCENT: "#3ecf9f"}

STAGES = {
    "draft": ("#e69f00", "#f0b429"),
    "build": ("#009e73", "#2fc596"),
    "verify": ("#5f80a3", "#7597bd"),
    "commit": ("#cc79a7", "#e29cc3"),
    "host": ("#a9afb8", "#6f7682"),
}
"""The stages of a decode step in their order, with their light and dark colours (after Okabe and Ito)."""

HEAT, _HEAT_DARK = ("#f1f5f9", "#8db9e2"), ("#1d232c", "#2c669f")
"""The ends of a heat map's scale."""

_FAMILIES = {
    "autoregressive": (("#7a828e", "#363c47"), ("#8d96a5", "#ccd2db")),
    "dflash": (("#d55e00", "#7d3600"), ("#f08c3e", "#ffd0a6")),
    "ddtree": (("#1c9c99", "#2268b2", "#47267f"), ("#58d1c9", "#6ba6f0", "#a184f2")),
    "ngram": (("#7f8700", "#454a00"), ("#bcc53a", "#e5eb9c")),
    "eagle3": (("#b5548f", "#64214a"), ("#dd8abd", "#f7cfe6")),
}
_OTHER = (("#946b2d", "#4c3614"), ("#cfa76b", "#f0d9b5"))
_SYMBOLS = {"autoregressive": "square", "dflash": "diamond", "ddtree": "circle", "ngram": "cross", "eagle3": "x"}


@dataclass(frozen=True)
class ArmKey:
    """What decides an arm's look."""

    name: str
    method: str
    budget: int | None


@dataclass(frozen=True)
class ArmStyle:
    """An arm's look. `label` and `short` are safe inside Plotly."""

    name: str
    label: str
    short: str
    color: str
    dark: str
    symbol: str
    dash: str


Styles = Mapping[str, ArmStyle]


def arm_styles(arms: Iterable[ArmKey]) -> dict[str, ArmStyle]:
    """A style an arm, in reading order: plain decoding, linear drafts, trees by budget. One hue a method, one
    shade an arm."""
    families: dict[str, list[ArmKey]] = defaultdict(list)
    for arm in sorted(set(arms), key=_reading_order):
        families[arm.method].append(arm)
    return {
        arm.name: _style(arm, rank / max(len(members) - 1, 1))
        for members in families.values()
        for rank, arm in enumerate(members)
    }


def exchange(styles: Styles) -> dict[str, str]:
    """Light colour to dark colour for everything a figure with these arms can hold."""
    fixed = DARK | dict(STAGES.values()) | dict(zip(HEAT, _HEAT_DARK, strict=True))
    return fixed | {style.color: style.dark for style in styles.values()}


def _reading_order(arm: ArmKey) -> tuple[int, str, int, str]:
    methods = list(_FAMILIES)
    rank = methods.index(arm.method) if arm.method in methods else len(methods)
    return rank, arm.method, arm.budget or 0, arm.name


def _style(arm: ArmKey, shade: float) -> ArmStyle:
    light, dark = _FAMILIES.get(arm.method, _OTHER)
    names = {"autoregressive": "AR", "dflash": "DF"}
    return ArmStyle(
        name=arm.name,
        label=plain(elide(arm.name)),
        short=str(arm.budget) if arm.budget is not None else names.get(arm.method, plain(elide(arm.name, 8))),
        color=_blend(light, shade),
        dark=_blend(dark, shade),
        symbol=_SYMBOLS.get(arm.method, "star"),
        dash="dash" if arm.method == "autoregressive" else "solid",
    )


def _blend(stops: tuple[str, ...], position: float) -> str:
    """The colour at `position` (0 to 1) of a ramp through `stops`."""
    place = position * (len(stops) - 1)
    index = min(int(place), len(stops) - 2)
    part = place - index
    pairs = zip(_channels(stops[index]), _channels(stops[index + 1]), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in pairs)


def _channels(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)
