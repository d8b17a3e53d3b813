"""Addresses of pages. Everything a page shows follows from its address, so that each view can be linked to."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, unquote, urlencode

Query = Mapping[str, str]


def run_address(name: str, query: Query | None = None) -> str:
    """The page of a run."""
    return f"/runs/{quote(name, safe='')}{written(query or {})}"


def diff_address(a: str, b: str) -> str:
    """The page that holds two runs beside each other."""
    return f"/diff{written({'a': a, 'b': b})}"


def run_name(path: str) -> str | None:
    """The run that a page's path names; None for another kind of page."""
    prefix = "/runs/"
    return unquote(path.removeprefix(prefix)) if path.startswith(prefix) else None


def parsed(search: str | None) -> dict[str, str]:
    """`?a=b` as a dictionary; of several values the last one."""
    return dict(parse_qsl((search or "").removeprefix("?"), keep_blank_values=False, max_num_fields=40))


def written(query: Query) -> str:
    """A query with its `?`, without empty values."""
    kept = {key: value for key, value in query.items() if value}
    return f"?{urlencode(kept)}" if kept else ""
