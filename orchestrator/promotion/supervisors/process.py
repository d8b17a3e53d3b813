"""Units as plain processes under a keeper of ours: no root, no init system, nothing installed but Python.

They outlive the orchestrator and its SSH connection, and come back after a reboot where there is cron: each has a line
of the user's crontab. What a unit's folder holds: `unit.json` (its variables too, so it is its owner's only),
`keeper.pyz`, `state.json`, `keeper.lock`, `inherited.json`, `until`, `server.log*`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath

from orchestrator.promotion.host import Host, HostError, Unit
from orchestrator.promotion.supervisors import archive
from orchestrator.promotion.supervisors.environment import environment

_KEEPER = "keeper.pyz"
_LOG = "server.log"
_ASK_S = 60.0
_REMOVE_S = 30.0
_MARGIN_S = 15.0


class ProcessSupervisor:
    """`python`: the interpreter for the keeper, 3.11 or newer; the unit's own need not be."""

    kind = "process"

    def __init__(self, python: str = "python3") -> None:
        self._python = python

    def install(self, host: Host, unit: Unit) -> None:
        host.make_folder(unit.folder)
        command = {
            "argv": unit.argv,
            "env": environment(unit),
            "cwd": str(unit.cwd),
            "memory_bytes": unit.memory_bytes or 0,
            "drains": unit.router,
        }
        _replace(host, unit.folder / _KEEPER, archive.build())
        _replace(host, unit.folder / "unit.json", json.dumps(command, indent=1).encode())

    def start(self, host: Host, unit: Unit) -> None:
        self._ask(host, unit, "start")

    def stop(self, host: Host, unit: Unit, timeout_s: float) -> None:
        if _KEEPER in host.listing(unit.folder):
            self._ask(host, unit, "stop", f"{timeout_s:g}", within_s=timeout_s + _MARGIN_S)

    def expire(self, host: Host, unit: Unit, after_s: float) -> None:
        if _KEEPER in host.listing(unit.folder):
            self._ask(host, unit, "expire", f"{after_s:g}")

    def reload(self, host: Host, unit: Unit) -> None:
        self._ask(host, unit, "reload")

    def remove(self, host: Host, unit: Unit) -> None:
        self.stop(host, unit, _REMOVE_S)
        host.remove(unit.folder)

    def alive(self, host: Host, unit: Unit) -> bool:
        """Also False for a server whose keeper was killed: it runs, but nobody would start it again."""
        state = self._state(host, unit)
        return bool(state.get("kept", False) and state.get("running", False))

    def lost_by_reboot(self, host: Host, unit: Unit) -> str:
        return str(self._state(host, unit).get("lost_by_reboot", "it was never started"))

    def read(self, host: Host, unit: Unit, path: PurePosixPath) -> bytes | None:
        """The server sees what the host sees."""
        return host.read(path)

    def log(self, host: Host, unit: Unit, lines: int) -> str:
        if _LOG not in host.listing(unit.folder):
            return ""
        return host.run(["tail", "-n", str(lines), str(unit.folder / _LOG)], timeout_s=_ASK_S).out

    def _state(self, host: Host, unit: Unit) -> Mapping[str, object]:
        """Empty for a unit that is not installed or was never started."""
        if _KEEPER not in host.listing(unit.folder):
            return {}
        answer = self._ask(host, unit, "status")
        try:
            return dict(json.loads(answer))
        except (ValueError, TypeError) as error:
            raise HostError(f"{host.name}: {unit.name}: its keeper answers {answer[:80]!r}") from error

    def _ask(self, host: Host, unit: Unit, action: str, *more: str, within_s: float = _ASK_S) -> str:
        keeper = [self._python, "-IS", str(unit.folder / _KEEPER)]
        finished = host.run([*keeper, action, str(unit.folder), *more], timeout_s=within_s)
        if finished.code:
            reason = (finished.err.strip().splitlines() or [f"exit code {finished.code}"])[-1]
            raise HostError(f"{host.name}: {unit.name} did not {action}: {reason}")
        return finished.out


def _replace(host: Host, path: PurePosixPath, data: bytes) -> None:
    if host.read(path) != data:
        host.write(path, data, mode=0o600)
