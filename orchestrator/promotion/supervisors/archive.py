"""The keeper as one file that runs wherever Python does."""

from __future__ import annotations

import io
import zipfile
from importlib import resources

_MAIN = """\
import sys

if sys.version_info < (3, 11):
    sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0])
from keeper.actions import main

sys.exit(main())
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def build() -> bytes:
    """A Python zip application; the same bytes for the same code."""
    modules = resources.files("orchestrator.promotion.supervisors.keeper").iterdir()
    sources = {f"keeper/{each.name}": each.read_text("utf-8") for each in modules if each.name.endswith(".py")}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in sorted((sources | {"__main__.py": _MAIN}).items()):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), text)
    return buffer.getvalue()
