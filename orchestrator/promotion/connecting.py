"""From a target's description to hosts and a supervisor."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from orchestrator.promotion.host import Host, RouterSupervisor, Supervisor
from orchestrator.promotion.spec import HostSpec, LocalTarget, SshTarget, TargetSpec


@contextmanager
def connected(spec: TargetSpec) -> Iterator[Mapping[str, Host]]:
    """The target's hosts by name, in its order; closed at the end. HostError for one that cannot be had."""
    with ExitStack() as held:
        yield {host.name: host for host in _hosts(spec, held)}


def supervisor_of(spec: TargetSpec) -> Supervisor:
    """What keeps the target's replicas running."""
    if spec.supervisor == "compose":
        from orchestrator.promotion.supervisors.compose import ComposeSupervisor

        return ComposeSupervisor()
    return router_supervisor_of(spec)


def router_supervisor_of(spec: TargetSpec) -> RouterSupervisor:
    """What keeps the target's own nginx running, which is a program of the host also where replicas are containers."""
    if spec.supervisor == "systemd":
        from orchestrator.promotion.supervisors.systemd import SystemdSupervisor

        return SystemdSupervisor()
    from orchestrator.promotion.supervisors.process import ProcessSupervisor

    here = sys.executable if isinstance(spec, LocalTarget) else "python3"
    return ProcessSupervisor(spec.interpreter or here)


def _hosts(spec: TargetSpec, held: ExitStack) -> list[Host]:
    if isinstance(spec, LocalTarget):
        from orchestrator.promotion.hosts.local import LocalHost

        return [LocalHost()]
    return [_ssh_host(spec, host, held) for host in spec.hosts]


def _ssh_host(spec: SshTarget, host: HostSpec, held: ExitStack) -> Host:
    from orchestrator.promotion.hosts.login import Login
    from orchestrator.promotion.hosts.ssh import SshHost

    login = Login(host.address, host.port, host.user, Path(host.key).expanduser() if host.key else None)
    if spec.known_hosts:
        login = Login(login.address, login.port, login.user, login.key, Path(spec.known_hosts))
    opened = SshHost(host.name, login)
    held.callback(opened.close)
    return opened
