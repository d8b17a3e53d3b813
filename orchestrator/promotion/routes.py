"""What the router does, as text for nginx: which release gets which sessions. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

import jinja2

from orchestrator.promotion.spec import RouterSpec

PIN_HEADER = "X-Orchestrate-Release"
"""A request with it goes to that release alone, where the router knows it."""
ROUTES_PATH = "/-/orchestrate/routes"
_SUMMARY = "# Routes: "


@dataclass(frozen=True)
class Group:
    """The replicas of one release, as `address:port`."""

    release: str
    servers: tuple[str, ...]


@dataclass(frozen=True)
class Canary:
    """A release that gets `share` per cent of the sessions until `until` (seconds since 1970).

    Past that, nginx itself sends everything to the stable release: a canary that nobody watches any more ends.
    """

    group: Group
    share: float
    until: int


@dataclass(frozen=True)
class Routes:
    """The stable release, perhaps a canary, and releases that only pinned requests reach.

    `spares` take what the stable release cannot: requests of which no byte was answered yet.
    """

    target: str
    stable: Group
    canary: Canary | None = None
    pinned: tuple[Group, ...] = ()
    spares: tuple[str, ...] = ()

    @property
    def generation(self) -> str:
        """12 hexadecimal digits that differ where the routes do: how a reload is seen to have taken effect."""
        return hashlib.sha256(repr(asdict(self)).encode()).hexdigest()[:12]

    @property
    def groups(self) -> tuple[Group, ...]:
        """All releases that can be reached, each once."""
        everyone = [self.stable, *([self.canary.group] if self.canary else []), *self.pinned]
        return tuple({group.release: group for group in everyone}.values())


def summary(routes: Routes) -> str:
    """The routes as one line of JSON, for whoever reads the file: release to share, and when a canary ends."""
    until = routes.canary.until if routes.canary else None
    return json.dumps({"shares": dict(shares(routes)), "canary_until": until})


def read_summary(text: str) -> dict[str, Any]:
    """`summary` of a file that `include_file` made; empty for any other."""
    for line in text.splitlines():
        if line.startswith(_SUMMARY):
            return dict(json.loads(line.removeprefix(_SUMMARY)))
    return {}


def include_file(routes: Routes, spec: RouterSpec, log: str, paths: Sequence[str] = ()) -> str:
    """Our part of nginx's http block. `paths` are let through besides everything below /v1/."""
    header = "$http_" + spec.session_header.lower().replace("-", "_")
    return (
        _environment()
        .get_template("routes.conf.j2")
        .render(
            routes=routes,
            summary=_SUMMARY + summary(routes),
            spec=spec,
            locations=["/v1/", *(f"= {path}" for path in paths)],
            log=log,
            prefix=f"orchestrate_{routes.target.replace('-', '_')}",
            session=header,
            pin="$http_" + PIN_HEADER.lower().replace("-", "_"),
            routes_path=ROUTES_PATH,
            before=f"^(?:{numbers_below(routes.canary.until)})[.]" if routes.canary else "",
        )
    )


def main_file(include: str, folder: str) -> str:
    """The whole nginx.conf of an instance of our own."""
    return _environment().get_template("nginx.conf.j2").render(include=include, folder=folder)


def numbers_below(limit: int) -> str:
    """A regular expression for the decimal numbers below `limit` that have as many digits as it."""
    digits = str(limit)
    parts = [_below(digits, place) for place in range(len(digits)) if digits[place] > _least(place)]
    return "|".join(parts) or "(?!)"


def _least(place: int) -> str:
    return "1" if place == 0 else "0"


def _below(digits: str, place: int) -> str:
    """Numbers that agree with `digits` before `place` and are smaller there."""
    rest = len(digits) - place - 1
    smaller = f"[{_least(place)}-{int(digits[place]) - 1}]"
    return digits[:place] + smaller + (f"[0-9]{{{rest}}}" if rest else "")


def shares(routes: Routes) -> Sequence[tuple[str, float]]:
    """(release, per cent of the sessions), the stable one first."""
    if routes.canary is None:
        return [(routes.stable.release, 100.0)]
    return [
        (routes.stable.release, 100.0 - routes.canary.share),
        (routes.canary.group.release, routes.canary.share),
    ]


def _environment() -> jinja2.Environment:
    folder = files("orchestrator.promotion") / "templates"
    loader = jinja2.FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8"))
    return jinja2.Environment(  # noqa: S701 - nginx's configuration, of checked values; nothing is HTML
        loader=loader,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
