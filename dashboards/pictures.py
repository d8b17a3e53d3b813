"""A run's figures as files of their own: PNG for slides, PDF for print. Kaleido draws them in Chromium."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from dashboards.report import gap_plate
from dashboards.run import Run, load_run
from dashboards.story import Plate, chapters
from dashboards.text import plain
from dashboards.theme import SURFACE, TEXT
from engines.messages import one_line
from orchestrator.errors import InputError
from orchestrator.store import RunStore

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_WIDE_PX, _NARROW_PX, _TITLE_PX = 1080, 640, 34
_SCALE = 2
_FIGURE_S = 120


def write_pictures(
    store: RunStore, folder: Path, kinds: Sequence[str], doing: Callable[[str], None] = lambda _: None
) -> list[Path]:
    """Write each figure of the run as `folder`/KEY.KIND for the kinds png and pdf. InputError where Kaleido or Chromium
    is missing or fails, or the folder cannot be written."""
    browser = _browser()
    run = load_run(store)
    jobs = [(plate, folder / f"{plate.key}.{kind}") for plate in _plates(run) for kind in kinds]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        asyncio.run(_draw(jobs, browser, doing))
    except ModuleNotFoundError as error:
        raise InputError("pictures need Kaleido: pip install 'orchestrate[dashboard]'") from error
    except TimeoutError as error:
        raise InputError(f"{browser}: a figure was not drawn within {_FIGURE_S} s") from error
    except (OSError, RuntimeError, ValueError) as error:
        # What the browser's driver adds after the first sentence is about its own logging.
        reason = one_line(str(error.args[0] if error.args else "")) or type(error).__name__
        raise InputError(f"{folder}: the pictures cannot be drawn with {browser}: {reason}") from error
    return [path for _, path in jobs]


def picture(plate: Plate) -> go.Figure:
    """The figure by itself: on paper, with its title."""
    figure = go.Figure(plate.figure)
    top = (figure.layout.margin.t or 0) + _TITLE_PX
    title = {"text": f"<b>{plain(plate.title)}</b>", "x": 0, "xref": "paper", "y": 1, "yref": "container"}
    title |= {"yanchor": "top", "pad": {"t": 10}, "font": {"size": 15, "color": TEXT}}
    figure.update_layout(title=title, margin_t=top, height=figure.layout.height + _TITLE_PX, paper_bgcolor=SURFACE)
    return figure


async def _draw(jobs: Sequence[tuple[Plate, Path]], browser: str, doing: Callable[[str], None]) -> None:
    from kaleido import Kaleido  # type: ignore[import-untyped]

    for name in ("kaleido", "choreographer"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    async with Kaleido(n=1, timeout=_FIGURE_S, mathjax=False, path=browser) as kaleido:
        for number, (plate, path) in enumerate(jobs, 1):
            doing(f"drawing {path.name}, {number} of {len(jobs)}")
            figure = picture(plate)
            width = _WIDE_PX if plate.wide else _NARROW_PX
            options: Any = {"format": path.suffix[1:], "width": width, "height": figure.layout.height, "scale": _SCALE}
            path.write_bytes(await kaleido.calc_fig(figure.to_dict(), opts=options))


def _plates(run: Run) -> list[Plate]:
    gaps = gap_plate(run)
    return [*(plate for chapter in chapters(run) for plate in chapter.plates), *([gaps] if gaps else [])]


def _browser() -> str:
    found = next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        raise InputError("pictures need Chromium: apt-get install chromium")
    return found
