"""An SSH connection that is made when first used, and made again when it is lost."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import fabric
import paramiko

from orchestrator.promotion.host import HostError
from orchestrator.promotion.hosts.login import Login, log_in

_FILE_SILENCE_S = 30.0
_FREE_S = 60.0
_POLL_S = 0.1
_CUT = "Socket is closed"
"""paramiko's words, while it has not noticed yet that the whole connection is gone."""
_PROHIBITED = 1
"""Why a channel was not opened, RFC 4254: the host's configuration forbids it."""

Result = TypeVar("Result")


class ConnectionLostError(HostError):
    """The connection ended while something was under way."""


class Connection:
    """May be used from several threads. `name` begins every message."""

    def __init__(self, name: str, login: Login) -> None:
        self.name = name
        self._login = login
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._open: fabric.Connection | None = None

    def twice(self, act: Callable[[], Result]) -> Result:
        """Do what may be done twice: once more, on a new connection, when the first one is lost meanwhile."""
        try:
            return act()
        except ConnectionLostError:
            return act()

    def session(self) -> paramiko.Channel:
        """A channel in which nothing runs yet. Waits for one where the host allows no more at a time (MaxSessions)."""
        return self.twice(self._session)

    @contextlib.contextmanager
    def files(self, what: str) -> Iterator[paramiko.SFTPClient]:
        """A file transfer of one's own: paramiko's cannot be shared by threads."""
        with self.twice(self._open_sftp) as sftp, self.failing(what):
            yield sftp

    def reach(self, address: str, port: int) -> paramiko.Channel | None:
        """A stream to an address as the host sees it; None where nothing listens. HostError: the host forbids it."""
        return self.twice(lambda: self._reach(address, port))

    def close(self) -> None:
        with self._lock:
            if self._open is not None:
                self._open.client.close()
            self._open = None

    @contextlib.contextmanager
    def failing(self, what: str) -> Iterator[None]:
        """Turn what went wrong into one line. ConnectionLostError, and a new connection next time, if it was that."""
        try:
            yield
        except paramiko.ChannelException as error:
            raise HostError(f"{self.name}: {what}: {error.text}") from error
        except (EOFError, TimeoutError, paramiko.SSHException) as error:
            self.close()
            raise ConnectionLostError(f"{self.name}: {what}: connection lost") from error
        except OSError as error:
            if self.alive() and str(error) != _CUT:
                raise HostError(f"{self.name}: {what}: {_reason(error)}") from error
            self.close()
            raise ConnectionLostError(f"{self.name}: {what}: connection lost") from error

    def alive(self) -> bool:
        connection = self._open
        return connection is not None and connection.transport.is_active()

    def _transport(self) -> paramiko.Transport:
        with self._lock:
            if self._open is None or not self._open.transport.is_active():
                self._open = self._log_in()
            return self._open.transport

    def _log_in(self) -> fabric.Connection:
        try:
            return log_in(self._login)
        except HostError as error:
            raise HostError(f"{self.name}: {error}") from error

    def _open_sftp(self) -> paramiko.SFTPClient:
        with self.failing("no file transfer"):
            channel = self._session()
            channel.settimeout(_FILE_SILENCE_S)
            channel.invoke_subsystem("sftp")
            return paramiko.SFTPClient(channel)

    def _session(self) -> paramiko.Channel:
        deadline = time.monotonic() + _FREE_S
        with self.failing("no session"):
            while True:
                try:
                    return self._channel("session")
                except paramiko.ChannelException as error:
                    if error.code == _PROHIBITED or time.monotonic() >= deadline:
                        raise
                time.sleep(_POLL_S)

    def _reach(self, address: str, port: int) -> paramiko.Channel | None:
        with self.failing(f"no way to {address}:{port}"):
            try:
                return self._channel("direct-tcpip", (address, port), ("127.0.0.1", 0))
            except paramiko.ChannelException as error:
                if error.code == _PROHIBITED:
                    raise
                return None

    def _channel(self, kind: str, *ends: tuple[str, int]) -> paramiko.Channel:
        """One at a time: of several that are refused at once, paramiko tells only one why."""
        transport = self._transport()
        with self._opening:
            return transport.open_channel(kind, *ends, timeout=self._login.timeout_s)


def _reason(error: OSError) -> str:
    """SFTP has no words for most of what can go wrong with a file."""
    text = error.strerror or str(error)
    return "failed there, for no stated reason; is the disk full?" if text == "Failure" else text
