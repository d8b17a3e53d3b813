"""Addresses of pages. Everything a page shows follows from its address, so that each view can be linked to."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, unquote, urlencode

Query = Mapping[str, str]


def run_address(name: str, query: Query | None = None) -> str:
    """The page of a run."""
    return f"/runs/{quote(name, safe='')}{written(query or {})}"


def trees_address(name: str, query: Query | None = None) -> str:
    """The page of a run's draft trees."""
    return f"/trees/{quote(name, safe='')}{written(query or {})}"


def releases_address(ask: str = "") -> str:
    """The page of releases; `ask`: a target to log in to."""
    return f"/releases{written({'ask': ask})}"


def run_name(path: str) -> str | None:
    """The run that a page's path names, be it the run's page or that of its trees; None for another kind of page."""
    prefix = next((prefix for prefix in ("/runs/", "/trees/") if path.startswith(prefix)), None)
    return unquote(path.removeprefix(prefix)) if prefix else None


def parsed(search: str | None) -> dict[str, str]:
    """`?a=b` as a dictionary; of several values the last one."""
    return dict(parse_qsl((search or "").removeprefix("?"), keep_blank_values=False))


def number(value: str) -> int:
    """A small whole number of a query; 0 for anything else."""
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 8 else 0


def written(query: Query) -> str:
    """A query with its `?`, without empty values."""
    kept = {key: value for key, value in query.items() if value}
    return f"?{urlencode(kept)}" if kept else ""
