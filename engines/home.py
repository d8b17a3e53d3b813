"""The folder of everything that is fetched or computed once."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """$ORCHESTRATE_HOME, or ~/.cache/orchestrate. Absolute; it may not exist yet."""
    return Path(os.environ.get("ORCHESTRATE_HOME") or "~/.cache/orchestrate").expanduser().absolute()


def models_folder() -> Path:
    return home() / "models"
