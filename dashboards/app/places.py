"""Where everything lies that pages read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

RUNS, DEPLOY, RELEASES = Path("runs"), Path("deploy.yaml"), Path("releases")
"""Where commands look when they are told nothing else."""


@dataclass(frozen=True)
class Places:
    """The folder of runs, the file that names targets, the folder of releases."""

    runs: Path
    deploy: Path = DEPLOY
    releases: Path = RELEASES
