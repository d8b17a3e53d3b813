"""What a chapter is made of."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go


@dataclass(frozen=True)
class Plate:
    """A figure on the page. `wide` ones take the full width."""

    key: str
    title: str
    caption: str
    figure: go.Figure
    wide: bool = False

    @property
    def label(self) -> str:
        """What the figure is, for those who do not see it."""
        return f"{self.title}. {self.caption}"


@dataclass(frozen=True)
class Chapter:
    """A question and the figures that answer it."""

    key: str
    title: str
    plates: list[Plate]
