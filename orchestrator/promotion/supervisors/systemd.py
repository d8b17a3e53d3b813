"""Units as hardened systemd services: of the system where we are root, else of the user who logs in.

A service of the system runs as a user that exists only while it runs (nginx aside, whose master needs root), and sees
no home. A service of a user needs lingering, or it would end with the login. Both come back after a reboot. What they
print is in the journal.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from orchestrator.promotion.host import Finished, Host, HostError, Unit
from orchestrator.promotion.supervisors import rendering
from orchestrator.promotion.supervisors.environment import environment

_ENVIRONMENT = "unit.env"
_HOMES = tuple(PurePosixPath(home) for home in ("/home", "/root", "/run/user"))
_STATE = (PurePosixPath("/var/lib/orchestrate"), PurePosixPath("/var/lib/private/orchestrate"))
"""Where StateDirectory= of a service without a user of its own leads, and where it is."""
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_ASK_S = 60.0
_REMOVE_S = 30.0
_KILLED_S = 15.0
_POLL_S = 0.2
_LOG_LINES = 20
_LOG_LOOKS = 5
_DOWN = {"inactive", "failed"}


@dataclass(frozen=True)
class _Manager:
    """The systemd that a service belongs to."""

    host: Host
    system: bool
    folder: PurePosixPath
    variables: tuple[str, ...] = ()

    @property
    def scope(self) -> tuple[str, ...]:
        return () if self.system else ("--user",)

    def file(self, unit: Unit) -> PurePosixPath:
        return self.folder / f"{unit.name}.service"

    def ask(self, *words: str) -> Finished:
        return self.call("systemctl", *self.scope, *words)

    def call(self, *words: str) -> Finished:
        return self.host.run([*self.variables, *words], timeout_s=_ASK_S)

    def must(self, *words: str) -> None:
        finished = self.ask(*words)
        if finished.code:
            lines = [line.strip() for line in finished.err.splitlines() if line.strip()]
            raise HostError(f"{self.host.name}: systemctl {' '.join(words)}: {' '.join(lines[:2]) or finished.code}")

    def state(self, unit: Unit) -> str:
        """`active`, `activating`, `deactivating`, `inactive` or `failed`."""
        return self.show(unit, "ActiveState")

    def show(self, unit: Unit, name: str) -> str:
        return self.ask("show", f"--property={name}", "--value", unit.name).out.strip()


class SystemdSupervisor:
    """Asks each host which of its managers is ours."""

    kind = "systemd"

    def install(self, host: Host, unit: Unit) -> None:
        manager = _manager(host)
        _check(host, unit, manager.system)
        host.make_folder(unit.folder)
        host.make_folder(manager.folder)
        file = unit.folder / _ENVIRONMENT
        host.write(file, rendering.environment_file(environment(unit)).encode(), mode=0o600)
        service = rendering.service(unit, manager.system, file).encode()
        if host.read(manager.file(unit)) != service:
            host.write(manager.file(unit), service)
            manager.must("daemon-reload")

    def start(self, host: Host, unit: Unit) -> None:
        manager = _manager(host)
        if not manager.system:
            _linger(host)
        manager.ask("stop", _timer(unit))
        manager.ask("reset-failed", unit.name)
        manager.must("enable", "--quiet", unit.name)
        if manager.ask("start", unit.name).code:
            manager.ask("disable", "--quiet", "--now", unit.name)
            raise HostError(
                f"{host.name}: {unit.name} did not start: {_failure(lambda: self.log(host, unit, _LOG_LINES))}"
            )

    def reload(self, host: Host, unit: Unit) -> None:
        _manager(host).must("kill", "--kill-who=main", "--signal=SIGHUP", unit.name)

    def expire(self, host: Host, unit: Unit, after_s: float) -> None:
        """By a timer that lasts until the next reboot, which a disabled service does not survive either."""
        manager = _manager(host)
        if host.read(manager.file(unit)) is None:
            return
        manager.must("disable", "--quiet", unit.name)
        manager.ask("stop", _timer(unit))
        when = (
            f"--unit={unit.name}-end",
            f"--on-active={after_s:.0f}s",
            "--timer-property=AccuracySec=1s",
            "--collect",
        )
        then = ("systemctl", *manager.scope, "stop", unit.name)
        finished = manager.call("systemd-run", *manager.scope, "--quiet", *when, *then)
        if finished.code:
            raise HostError(f"{host.name}: systemd-run: {finished.err.strip() or finished.code}")

    def stop(self, host: Host, unit: Unit, timeout_s: float) -> None:
        manager = _manager(host)
        if host.read(manager.file(unit)) is None:
            return
        manager.ask("stop", _timer(unit))
        manager.must("disable", "--quiet", unit.name)
        manager.must("stop", "--no-block", unit.name)
        if _down(manager, unit, timeout_s):
            return
        manager.ask("kill", "--signal=SIGKILL", unit.name)
        if not _down(manager, unit, _KILLED_S):
            raise HostError(f"{host.name}: {unit.name} does not end, not even by SIGKILL")

    def remove(self, host: Host, unit: Unit) -> None:
        self.stop(host, unit, _REMOVE_S)
        manager = _manager(host)
        if host.read(manager.file(unit)) is not None:
            host.remove(manager.file(unit))
            manager.must("daemon-reload")
            manager.ask("reset-failed", unit.name)
        if manager.system:
            for folder in _STATE:
                host.remove(folder / unit.name)
        host.remove(unit.folder)

    def alive(self, host: Host, unit: Unit) -> bool:
        return _manager(host).state(unit) == "active"

    def lost_by_reboot(self, host: Host, unit: Unit) -> str:
        said = _manager(host).ask("is-enabled", unit.name)
        return "" if said.code == 0 else f"systemd says {said.out.strip() or said.err.strip() or said.code}"

    def read(self, host: Host, unit: Unit, path: PurePosixPath) -> bytes | None:
        """Through the service's own file system, in which /tmp is private."""
        pid = _manager(host).show(unit, "MainPID")
        if pid in ("", "0"):
            return None
        finished = host.run(["cat", f"/proc/{pid}/root{path}"], timeout_s=_ASK_S)
        if finished.code and "No such file" not in finished.err:
            raise HostError(f"{host.name}: {unit.name}: {finished.err.strip() or finished.code}")
        return finished.out.encode() if finished.code == 0 else None

    def log(self, host: Host, unit: Unit, lines: int) -> str:
        manager = _manager(host)
        which = ("--unit" if manager.system else "--user-unit", unit.name)
        how = ("--lines", str(lines), "--output=cat", "--no-pager", "--quiet")
        return manager.call("journalctl", *which, *how).out


def _timer(unit: Unit) -> str:
    return f"{unit.name}-end.timer"


def _manager(host: Host) -> _Manager:
    identity, home = host.run(["sh", "-c", 'id -u; echo "$HOME"'], timeout_s=_ASK_S).out.splitlines()
    if identity == "0":
        folder = PurePosixPath("/etc/systemd/system")
        return _Manager(host, True, folder)
    variables = ("env", f"XDG_RUNTIME_DIR=/run/user/{identity}")
    folder = PurePosixPath(home) / ".config/systemd/user"
    return _Manager(host, False, folder, variables)


def _failure(log: Callable[[], str]) -> str:
    """The line in which systemd says what failed, which the journal may get a little later; else the last one."""
    lines: list[str] = []
    for _ in range(_LOG_LOOKS):
        lines = [line.strip() for line in log().splitlines() if line.strip()]
        failed = [line for line in lines if ".service: Failed" in line and "Failed with result" not in line]
        if failed:
            return failed[-1][:300]
        time.sleep(_POLL_S)
    return (lines or ["its log is empty"])[-1][:300]


def _linger(host: Host) -> None:
    """Have our services outlive our logins; allowed to everyone for themselves, where polkit has its usual rules."""
    finished = host.run(["loginctl", "enable-linger"], timeout_s=_ASK_S)
    if finished.code:
        reason = (finished.err.strip().splitlines() or [f"exit code {finished.code}"])[0]
        raise HostError(f"{host.name}: services would end with the login; `loginctl enable-linger` says: {reason}")


def _down(manager: _Manager, unit: Unit, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while manager.state(unit) not in _DOWN:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _check(host: Host, unit: Unit, system: bool) -> None:
    """HostError for what a service file cannot state, or what the service could not reach."""
    if not _NAME.fullmatch(unit.name):
        raise HostError(f"{host.name}: {unit.name!r} cannot be the name of a service")
    for path in _paths(unit):
        if any(not character.isprintable() for character in str(path)):
            raise HostError(f"{host.name}: {str(path)!r} cannot be stated in a service file")
        if system and any(path.is_relative_to(home) for home in _HOMES):
            raise HostError(
                f"{host.name}: a service of the system sees no home, and {path} lies in one: use /opt or /srv"
            )


def _paths(unit: Unit) -> Iterator[PurePosixPath]:
    named = (PurePosixPath(word) for word in unit.argv if word.startswith("/"))
    yield from (*named, unit.cwd, unit.folder, unit.release, *unit.models)
