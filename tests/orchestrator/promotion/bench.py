"""A local target with real processes and a real nginx, and the commands against it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from orchestrator.errors import InputError
from orchestrator.ports import free_port
from orchestrator.promotion import promote, replicas, rollback
from orchestrator.promotion.journal import Standing
from orchestrator.promotion.progress import Progress
from orchestrator.promotion.release import Release
from orchestrator.promotion.site import Site, open_site
from orchestrator.promotion.spec import RouterSpec, load_target
from orchestrator.promotion.supervisors.keeper.processes import members
from tests.orchestrator.promotion import making

_ROOT = Path(__file__).parents[3]
PROGRAM = ("-c", "from orchestrator.cli import main; main()")


@dataclass
class Bench:
    """`changes`: keys of the target that are not making.target's. `shown`: what the last command printed."""

    folder: Path
    port: int
    changes: dict[str, Any] = field(default_factory=dict)
    shown: str = ""

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @contextlib.contextmanager
    def site(self, defects: Mapping[str, Any] | None = None, **changes: Any) -> Iterator[Site]:
        """The target; releases that start there have the defects."""
        target = making.target(self.root, self.port, defects, **self.changes | changes)
        deploy = making.write_deploy(self.folder / "deploy.yaml", bench=target)
        with open_site("bench", load_target(deploy, "bench")) as site:
            yield site

    def promote(self, release: Release, defects: Mapping[str, Any] | None = None, **changes: Any) -> str:
        with self.site(defects, **changes) as site, self._progress() as progress:
            return promote.promote(site, release, progress)

    def rollback(self, **changes: Any) -> str:
        with self.site(**changes) as site, self._progress() as progress:
            return rollback.rollback(site, progress)

    def standing(self) -> Standing:
        with self.site() as site:
            return site.journal.standing()

    def serving(self) -> str | None:
        serving = self.standing().serving
        return serving.release if serving else None

    def shares(self) -> dict[str, float]:
        """By the routes that nginx has in force."""
        with self.site() as site:
            return site.router.shares()

    def units(self) -> list[str]:
        """Names of the replicas that are installed, running or not."""
        folder = self.root / "units"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def kill_replicas(self, release: str) -> None:
        """As a reboot does: the processes are gone, and nobody wrote anything down."""
        with self.site() as site:
            placed = self.standing().known[release]
            for replica in placed.replicas:
                unit = site.unit(replicas.release_on(site, release), replica)
                site.supervisor.stop(site.hosts[replica.host], unit, 5)

    def keeper(self, folder: Path) -> dict[str, Any]:
        """What the keeper of a unit wrote down."""
        found: dict[str, Any] = json.loads((folder / "state.json").read_text())
        return found

    def unit_folder(self, release: str) -> Path:
        """Of the only replica of a release."""
        (found,) = [self.root / "units" / name for name in self.units() if release in name]
        return found

    @property
    def router_folder(self) -> Path:
        return self.root / "router" / "unit"

    def pull_the_plug(self) -> int:
        """SIGKILL for everything of the target, keepers first. Returns how many processes there were."""
        folders = [self.router_folder, *(self.root / "units" / name for name in self.units())]
        killed = _kill([int(self.keeper(folder)["keeper"]["pid"]) for folder in folders])
        while left := [pid for folder in folders for pid in inside(folder)]:
            killed |= _kill(left)
        return len(killed)

    def command(self, *arguments: str, through: Sequence[str] = PROGRAM) -> subprocess.Popen[str]:
        """The program as a process of its own, on this bench's files."""
        environment = os.environ | {"ORCHESTRATE_DEPLOY": str(self.folder / "deploy.yaml"), "COLUMNS": "200"}
        return subprocess.Popen(
            [sys.executable, *through, *arguments],
            cwd=_ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def close(self) -> None:
        """Stop everything, also what a failed test left."""
        with self.site() as site:
            site.router.close()
            standing = site.journal.standing()
            placed = list(standing.known.values()) + ([standing.change.new] if standing.change else [])
            for one in placed:
                with contextlib.suppress(InputError):
                    replicas.remove(site, replicas.release_on(site, one.release), one.replicas)

    @contextlib.contextmanager
    def _progress(self) -> Iterator[Progress]:
        written = StringIO()
        try:
            yield Progress(Console(file=written, width=200))
        finally:
            self.shown = written.getvalue()


def inside(unit: Path) -> set[int]:
    """Processes of a unit, its keeper aside."""
    return members(unit, unit / "server.log")


def _kill(pids: Sequence[int]) -> set[int]:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return set(pids)


def need_nginx() -> None:
    if not Path(RouterSpec().program).exists():
        pytest.skip("nginx is not installed (apt: nginx)")


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Bench]:
    """A fresh target on ports of its own."""
    need_nginx()
    bench = Bench(folder, free_port(row=6))
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield bench
    finally:
        signal.signal(signal.SIGTERM, before)
        bench.close()
