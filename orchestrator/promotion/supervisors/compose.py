"""Units as containers of docker compose: version 2 or newer as a plugin, or docker-compose 1.28 or newer.

The server has the host's network, because the same command has to serve under every supervisor, and binds what it is
told. Everything else is closed: its root and mounts are read-only, it has no capability and no root user, and sees
its GPUs alone. The image has to have `python3`; one that is not on the host is pulled when the unit is installed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import PurePosixPath

from orchestrator.engine_log import telling_line
from orchestrator.promotion.host import Finished, Host, HostError, Unit
from orchestrator.promotion.supervisors import rendering
from orchestrator.promotion.supervisors.environment import environment

_FILE = "compose.yaml"
_ENVIRONMENT = "unit.env"
_PROJECT = re.compile(r"[a-z0-9][a-z0-9_-]*")
_END = "until"
_RESTART = "unless-stopped"
_POLICY = "{{.HostConfig.RestartPolicy.Name}}"
_IDENTITY = "{{.Id}}{{range .RepoDigests}} {{.}}{{end}}"
_CAT = "import sys; sys.stdout.write(open(sys.argv[1]).read())"
_LATER = """\
setsid -f sh -c 'sleep "$1"; [ "$(cat "$2")" = "$3" ] && exec docker stop --time 600 "$4"' sh "$@" \
    < /dev/null > /dev/null 2>&1
"""
"""Stop container $4 after $1 seconds, if file $2 still says $3 then: a start in between removes it."""
_LOGS = 'docker logs --tail "$1" "$2" 2>&1'
_ASK_S = 120.0
_PULL_S = 3600.0
_MARGIN_S = 60.0
_REMOVE_S = 30


class ComposeSupervisor:
    """One project a unit."""

    kind = "compose"

    def install(self, host: Host, unit: Unit) -> None:
        if unit.image is None or not _PROJECT.fullmatch(unit.name):
            raise HostError(f"{host.name}: {unit.name!r} needs an image, and a name of a-z, 0-9, - and _")
        try:
            variables = rendering.compose_variables({"HOME": "/tmp", **environment(unit)})  # noqa: S108 - its tmpfs
        except ValueError as error:
            raise HostError(f"{host.name}: {unit.name}: {error}") from error
        if host.run(["docker", "image", "inspect", unit.image], timeout_s=_ASK_S).code:
            _must(host, ["docker", "pull", "--quiet", unit.image], _PULL_S)
        host.make_folder(unit.folder)
        file = unit.folder / _ENVIRONMENT
        host.write(file, variables.encode(), mode=0o600)
        host.write(unit.folder / _FILE, rendering.compose(unit, file).encode(), mode=0o600)
        _compose(host, unit, "config", "--quiet")

    def start(self, host: Host, unit: Unit) -> None:
        _check_image(host, unit)
        host.remove(unit.folder / _END)
        _compose(host, unit, "up", "--detach", "--no-build")
        for container in _containers(host, unit):
            _must(host, ["docker", "update", "--restart", _RESTART, container], _ASK_S)

    def expire(self, host: Host, unit: Unit, after_s: float) -> None:
        """By a process that waits on the host; Docker itself ends no container at a time."""
        for container in _containers(host, unit):
            moment = f"{time.time() + after_s:.3f}"
            _must(host, ["docker", "update", "--restart", "no", container], _ASK_S)
            host.write(unit.folder / _END, moment.encode())
            _must(
                host, ["sh", "-c", _LATER, "sh", f"{after_s:.0f}", str(unit.folder / _END), moment, container], _ASK_S
            )

    def stop(self, host: Host, unit: Unit, timeout_s: float) -> None:
        if _installed(host, unit):
            _compose(host, unit, "stop", "--timeout", f"{timeout_s:.0f}", within_s=timeout_s + _MARGIN_S)

    def remove(self, host: Host, unit: Unit) -> None:
        if _installed(host, unit):
            _compose(host, unit, "down", "--timeout", str(_REMOVE_S), "--volumes")
        host.remove(unit.folder)

    def alive(self, host: Host, unit: Unit) -> bool:
        return bool(_containers(host, unit, "--filter", "status=running"))

    def log(self, host: Host, unit: Unit, lines: int) -> str:
        found = _containers(host, unit, "--all")
        return _must(host, ["sh", "-c", _LOGS, "sh", str(lines), found[0]], _ASK_S).out if found else ""

    def lost_by_reboot(self, host: Host, unit: Unit) -> str:
        """Docker itself has to be enabled on the host."""
        found = _containers(host, unit, "--all")
        if not found:
            return "there is no container"
        policy = _must(host, ["docker", "inspect", "--format", _POLICY, found[0]], _ASK_S).out.strip()
        return "" if policy == _RESTART else f"its container's restart policy is {policy!r}"

    def read(self, host: Host, unit: Unit, path: PurePosixPath) -> bytes | None:
        found = _containers(host, unit)
        if not found:
            return None
        done = host.run(["docker", "exec", found[0], "python3", "-c", _CAT, str(path)], timeout_s=_ASK_S)
        if done.code and "FileNotFoundError" not in done.err:
            raise HostError(f"{host.name}: docker exec failed: {telling_line(done.err) or done.code}")
        return done.out.encode() if done.code == 0 else None


def _check_image(host: Host, unit: Unit) -> None:
    """HostError unless the host's image has the content that was asked for: a registry's digest, or an image's id."""
    asked = (unit.image or "").rpartition("@")[2]
    found = host.run(["docker", "image", "inspect", "--format", _IDENTITY, unit.image or ""], timeout_s=_ASK_S)
    there = {word.rpartition("@")[2] for word in found.out.split()}
    if asked not in there:
        told = ", ".join(sorted(there)) or telling_line(found.err) or "no digest"
        raise HostError(f"{host.name}: {unit.image}: the image on this host is another one: {told}")


def _installed(host: Host, unit: Unit) -> bool:
    return _FILE in host.listing(unit.folder)


def _containers(host: Host, unit: Unit, *which: str) -> list[str]:
    """Ids of the project's containers: one, or none."""
    ours = f"label=com.docker.compose.project={unit.name}"
    return _must(host, ["docker", "ps", "--quiet", "--filter", ours, *which], _ASK_S).out.split()


def _compose(host: Host, unit: Unit, *words: str, within_s: float = _ASK_S) -> Finished:
    project = ("--project-name", unit.name, "--file", str(unit.folder / _FILE))
    return _must(host, [*_way(host), *project, *words], within_s)


def _way(host: Host) -> Sequence[str]:
    if host.run(["docker", "compose", "version"], timeout_s=_ASK_S).code == 0:
        return ("docker", "compose")
    if host.run(["sh", "-c", "command -v docker-compose"], timeout_s=_ASK_S).code == 0:
        return ("docker-compose",)
    raise HostError(f"{host.name}: neither `docker compose` nor `docker-compose` is there")


def _must(host: Host, argv: Sequence[str], within_s: float) -> Finished:
    finished = host.run(argv, timeout_s=within_s)
    if finished.code:
        raise HostError(f"{host.name}: {argv[0]} failed: {telling_line(finished.err) or finished.code}")
    return finished
