"""Which SGLang an environment holds: a script, run by path with that environment's interpreter. Standard library only.

Prints one line, which is part of every trial's identity; see `engines.sglang.software`. Never imports SGLang or our
plugin, which takes seconds.
"""

from __future__ import annotations

import hashlib
import sys
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from pathlib import Path

PLUGINS = "sglang.srt.plugins"
PLUGIN = "ddtree"


def describe() -> str:
    """`sglang 0.5.23, torch 2.14.1, ddtree-kernels 0.1.0 code 0123456789ab`; the last part where the plugin is.

    PackageNotFoundError names what is missing.
    """
    parts = [f"sglang {version('sglang')}", f"torch {version('torch')}"]
    if any(entry.name == PLUGIN for entry in entry_points(group=PLUGINS)):
        parts.append(f"ddtree-kernels {version('ddtree-kernels')} code {_code_digest()}")
    return ", ".join(parts)


def _code_digest() -> str:
    """12 hexadecimal digits over the names and contents of the plugin's sources and tuned configurations."""
    spec = find_spec("ddtree")
    if spec is None or spec.origin is None:
        raise PackageNotFoundError("ddtree")
    folder = Path(spec.origin).parent
    digest = hashlib.sha256()
    for path in sorted(path for kind in ("*.py", "*.json") for path in folder.rglob(kind)):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


if __name__ == "__main__":
    try:
        sys.stdout.write(describe() + "\n")
    except PackageNotFoundError as error:
        raise SystemExit(f"it has no {error.name}") from error
