"""What a Python has installed: a script for the interpreter in question, by path or as text. Standard library only.

Prints its version and, for each distribution, the version and a digest of the files that it brought, without importing
any of them. Two installations of one wheel have one digest, whatever folder and installer they have.
"""

from __future__ import annotations

import csv
import hashlib
import json
import platform
import re
import sys
from importlib.metadata import Distribution, distributions

_OF_THE_INSTALLATION = re.compile(
    r"\.\./.*|__editable__.*|.*\.pyc|.*\.dist-info/(RECORD|INSTALLER|REQUESTED|direct_url\.json)"
)
"""Files that differ from one installation to another of the same: scripts name their interpreter."""


def installed() -> dict[str, list[str]]:
    """Name to version and 16 hexadecimal digits; the first of a name, as the interpreter imports that one."""
    found: dict[str, list[str]] = {}
    for item in distributions():
        if name := _name(item):
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), [item.version, _digest(item)])
    return dict(sorted(found.items()))


def describe() -> dict[str, object]:
    return {"python": platform.python_version(), "packages": installed()}


def _name(item: Distribution) -> str:
    """Empty for a folder without metadata. There, a finder of the backport importlib_metadata raises, which is in use
    wherever some package has imported it."""
    try:
        return item.metadata["Name"] or ""
    except FileNotFoundError:
        return ""


def _digest(item: Distribution) -> str:
    """Over RECORD: the names, digests and sizes of its files. Of nothing where there is none."""
    rows = csv.reader((item.read_text("RECORD") or "").splitlines())
    lines = sorted(",".join(row) for row in rows if row and not _OF_THE_INSTALLATION.fullmatch(row[0]))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(describe()) + "\n")
