"""nginx on a target's first host: write our file, test it, reload, and know when the new routes are in force.

An instance of our own is a unit of the target's supervisor, which starts it again and, where it can, after a reboot.
"""

from __future__ import annotations

import contextlib
import json
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import PurePosixPath
from typing import Any

from engines.registry import engine_names, get_engine
from orchestrator.promotion import routes
from orchestrator.promotion.errors import PromotionError
from orchestrator.promotion.host import Finished, Host, RouterSupervisor, Unit
from orchestrator.promotion.routes import Routes
from orchestrator.promotion.spec import RouterSpec

_COMMAND_S = 30.0
_IN_FORCE_S = 20.0
_POLL_S = 0.1
_LOG_LINES = 20_000
_LOG_LIMIT = 64 * 2**20
_ESTABLISHED = "01"


@dataclass(frozen=True)
class Router:
    """The router of one target. `folder` is ours on the host; `include` the one file of ours that nginx reads.

    `supervisor` keeps an instance of our own, as a unit called `name`.
    """

    host: Host
    spec: RouterSpec
    folder: PurePosixPath
    supervisor: RouterSupervisor
    name: str

    @property
    def own(self) -> bool:
        return self.spec.mode == "own"

    @property
    def unit(self) -> Unit:
        return Unit(
            name=self.name,
            argv=(self.spec.program, *self._files()),
            env={},
            cwd=self.folder,
            folder=self.folder / "unit",
            release=self.folder,
            models=(),
            port=self.spec.port,
            router=True,
        )

    @property
    def include(self) -> PurePosixPath:
        return PurePosixPath(self.spec.include_path) if self.spec.include_path else self.folder / "routes.conf"

    @property
    def log(self) -> PurePosixPath:
        return self.folder / "requests.log"

    def check(self) -> str:
        """Why nginx cannot be used on the host; empty where it can."""
        done = self._nginx("-v")
        return "" if done.code == 0 else f"{self.host.name}: {self.spec.program} does not run: {_last(done)}"

    def running(self) -> bool:
        """Whether the router answers at all."""
        return self.generation() is not None

    def lost_by_reboot(self) -> str:
        """Why a reboot would not bring it back; empty where it does. The host's own nginx is the host's business."""
        return self.supervisor.lost_by_reboot(self.host, self.unit) if self.own else ""

    def generation(self) -> str | None:
        """Which routes are in force; None where nothing of ours answers."""
        with self.host.forward(self.spec.port, self.spec.address) as port, contextlib.suppress(OSError, HTTPException):
            url = f"http://127.0.0.1:{port}{routes.ROUTES_PATH}"
            with urllib.request.urlopen(url, timeout=5) as answer:
                return str(answer.read(64).decode(errors="replace"))
        return None

    def shares(self) -> dict[str, float]:
        """Release to its share of the sessions in per cent, by the file that nginx reads; empty without one."""
        found = routes.read_summary((self.host.read(self.include) or b"").decode(errors="replace"))
        if not found:
            return {}
        stable, *rest = found["shares"]
        over = found["canary_until"] is not None and self.clock() >= found["canary_until"]
        return {stable: 100.0} | dict.fromkeys(rest, 0.0) if over else dict(found["shares"])

    def clock(self) -> float:
        """Seconds since 1970 by the host's clock, which is nginx's."""
        return float(self.host.run(["date", "+%s"], timeout_s=_COMMAND_S).out)

    def apply(self, wanted: Routes) -> None:
        """Bring the routes into force. PromotionError, with the routes before still in force, where nginx refuses."""
        now, kept, before = self.generation(), self._kept(), self.host.read(self.include)
        text = routes.include_file(wanted, self.spec, str(self.log), _paths()).encode()
        if now == wanted.generation and kept and before == text:
            return
        self._prepare()
        self.host.write(self.include, text)
        tested = self._nginx("-t")
        if tested.code != 0:
            self._restore(before)
            raise PromotionError(f"{self.host.name}: nginx refuses the routes: {_last(tested)}")
        self._load(kept)
        if not kept and self.generation() not in (None, wanted.generation):
            self._load(kept=True)  # it was taken over as it ran, with the routes that it had read
        self._await(wanted.generation)

    def close(self) -> None:
        """Take our routes away, and the instance where it is our own."""
        if self.own:
            self.supervisor.remove(self.host, self.unit)
            return
        if self.host.read(self.include) is not None:
            self.host.remove(self.include)
            self._nginx("-s", "reload")

    def in_flight(self, servers: Sequence[str]) -> int:
        """Requests that the router's host has open with these `address:port`: nginx opens a connection for each."""
        table = self.host.run(["cat", "/proc/net/tcp"], timeout_s=_COMMAND_S).out
        wanted = {_hexadecimal(server) for server in servers}
        return sum(remote in wanted for remote in _established(table))

    def requests(self, since: float) -> list[Mapping[str, Any]]:
        """The log's requests that ended after `since` (seconds since 1970), of the last 20,000."""
        done = self.host.run(["tail", "-n", str(_LOG_LINES), str(self.log)], timeout_s=_COMMAND_S)
        found = [entry for line in done.out.splitlines() if (entry := _entry(line)) is not None]
        return [entry for entry in found if float(entry["time"]) >= since]

    def rotate(self) -> None:
        """Put the log aside once it is large; one old log is kept."""
        size = self.host.run(["stat", "-c", "%s", str(self.log)], timeout_s=_COMMAND_S)
        if size.code == 0 and int(size.out) > _LOG_LIMIT:
            self.host.run(["mv", str(self.log), f"{self.log}.1"], timeout_s=_COMMAND_S)
            self._load(kept=True)

    def _prepare(self) -> None:
        self.host.make_folder(self.folder / "tmp")
        if self.own:
            self.host.write(self.folder / "nginx.conf", self._main().encode())

    def _main(self) -> str:
        return routes.main_file(str(self.include), str(self.folder))

    def _restore(self, before: bytes | None) -> None:
        if before is None:
            self.host.remove(self.include)
        else:
            self.host.write(self.include, before)

    def _kept(self) -> bool:
        """Whether nginx is in its supervisor's hands, or is the host's."""
        return not self.own or self.supervisor.alive(self.host, self.unit)

    def _load(self, kept: bool) -> None:
        """A graceful reload: what is being answered goes on in the old workers. An own instance may have to start;
        what is left of one whose supervisor died finishes its answers meanwhile."""
        if self.own and kept:
            self.supervisor.reload(self.host, self.unit)
        elif self.own:
            self.supervisor.install(self.host, self.unit)
            self.supervisor.start(self.host, self.unit)
        elif (done := self._nginx("-s", "reload")).code != 0:
            raise PromotionError(f"{self.host.name}: nginx cannot be reloaded: {_last(done)}")

    def _await(self, generation: str) -> None:
        deadline = time.monotonic() + _IN_FORCE_S
        while self.generation() != generation:
            if time.monotonic() > deadline:
                raise PromotionError(
                    f"{self.host.name}: nginx did not take up the new routes on {self.spec.listen} within "
                    f"{_IN_FORCE_S:g} s; its log is {self.folder}/error.log"
                )
            time.sleep(_POLL_S)

    def _nginx(self, *arguments: str) -> Finished:
        which = self._files() if self.own and arguments != ("-v",) else ()
        return self.host.run([self.spec.program, *which, *arguments], timeout_s=_COMMAND_S)

    def _files(self) -> tuple[str, ...]:
        """Where an own instance starts to log, is at home and is configured."""
        return ("-e", str(self.folder / "error.log"), "-p", str(self.folder), "-c", str(self.folder / "nginx.conf"))


def _paths() -> list[str]:
    """Where engines take requests, besides OpenAI's paths."""
    paths = {get_engine(name).dialect.path for name in engine_names()}
    return sorted(path for path in paths if not path.startswith("/v1/"))


def _last(done: Finished) -> str:
    """The line of a failed nginx that says why."""
    lines = [line for line in done.err.splitlines() if "[emerg]" in line or "[error]" in line]
    return (lines or done.err.strip().splitlines() or [f"exit code {done.code}"])[0][:300]


def _hexadecimal(server: str) -> str:
    """`address:port` as /proc/net/tcp writes it: little-endian IPv4."""
    address, _, port = server.rpartition(":")
    octets = [int(part) for part in address.split(".")]
    return "".join(f"{octet:02X}" for octet in reversed(octets)) + f":{int(port):04X}"


def _established(table: str) -> list[str]:
    """Remote ends of the established connections."""
    rows = [line.split() for line in table.splitlines()[1:]]
    return [row[2] for row in rows if len(row) > 3 and row[3] == _ESTABLISHED]


def _entry(line: str) -> Mapping[str, Any] | None:
    """A line of the log; None for one that is cut off."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and "time" in entry and "upstream" in entry else None
