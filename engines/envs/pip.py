"""What pip's output means to the user."""

from __future__ import annotations

import re

from engines.base import EngineError

_ABSENT = re.compile(r"(No matching distribution found for|Cannot install) (?P<requirement>\S+==[^\s,]+)")
"""Of several pins, pip says that it cannot install one for conflicts; without dependencies it is one that is absent."""


class InstallError(EngineError):
    """The environment could not be made. One line, with the way out where there is one."""


def explain(output: str) -> str:
    """Why an installation failed, in one line."""
    if "No space left on device" in output:
        return "disk full; free some, or set ORCHESTRATE_HOME to a larger disk"
    if "No module named pip" in output:
        return "this Python has no pip; run: python -m ensurepip"
    if "Retrying" in output:
        return "offline: pip reached no package index; try again with a network connection"
    absent = _ABSENT.search(output)
    if absent is not None:
        return _absence(absent["requirement"])
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith("ERROR")]
    return (telling or lines or ["pip wrote nothing"])[-1][:300]


def _absence(requirement: str) -> str:
    local = requirement.partition("+")[2]
    if not local:
        return f"the package index that pip is set to does not offer {requirement}"
    return (
        f"the package index that pip is set to does not offer {requirement}, the {local} build; add PyTorch's index of "
        f"{local} builds to pip's configuration, beside the one that is there"
    )
