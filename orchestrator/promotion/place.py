"""Where a replica runs, for an adapter that has to look up what its server says of files there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath

from engines.digests import digest_of
from orchestrator.promotion.host import Host, HostError, Supervisor, Unit

_LIST = 'if cd "$1" 2>/dev/null; then find -L . -type f -printf "%s %P\\0"; fi'
_DIGESTS = 'cd "$1" && find -L . -type f -printf "%P\\0" | xargs -0r sha256sum -z --'
_ASK_S = 60.0
_BYTES_PER_S = 20e6
"""A slow disk: how long digests may take is reckoned with it."""


@dataclass(frozen=True)
class ReplicaPlace:
    """`known`: digests of folders that were taken before, which replicas of one host share."""

    host: Host
    supervisor: Supervisor
    unit: Unit
    known: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def port(self) -> int:
        return self.unit.port

    def read(self, path: str) -> bytes | None:
        return self.supervisor.read(self.host, self.unit, PurePosixPath(path))

    def digest(self, folder: str) -> str | None:
        """Models lie under the same path for a server as for its host."""
        key = (self.host.name, folder)
        if key not in self.known:
            listed = [line.partition(" ") for line in self._ask(_LIST, folder, _ASK_S)]
            if not listed:
                return None
            within = _ASK_S + sum(int(size) for size, _, _ in listed) / _BYTES_PER_S
            lines = [line.partition("  ") for line in self._ask(_DIGESTS, folder, within)]
            self.known[key] = digest_of({name: sha256 for sha256, _, name in lines})
        return self.known[key]

    def _ask(self, script: str, folder: str, within_s: float) -> list[str]:
        done = self.host.run(["sh", "-c", script, "sh", folder], timeout_s=within_s)
        if done.code:
            raise HostError(f"{self.host.name}: {folder}: {done.err.strip() or done.code}")
        return [line for line in done.out.split("\0") if line]
