"""Logging in to a host by SSH, with its identity checked first.

Keys from a file or an agent, never a password. A host whose key is unknown, changed or revoked is refused, and nothing
is ever added to known_hosts. OpenSSH's own configuration is not read: what counts is stated by the caller.
"""

from __future__ import annotations

import getpass
import logging
import socket
from dataclasses import dataclass
from pathlib import Path

import fabric
import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

from orchestrator.promotion.host import HostError

_KEEPALIVE_S = 15
_SILENCE_MS = 30_000
"""Bytes that nobody acknowledges for so long end the connection: a cable pulled, a host gone."""

logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # it prints tracebacks of what it also raises


@dataclass(frozen=True)
class Login:
    """How to reach a host. `user` None: ours. `key` None: the agent's keys, then the usual files in ~/.ssh."""

    address: str
    port: int = 22
    user: str | None = None
    key: Path | None = None
    known_hosts: Path = Path("~/.ssh/known_hosts")
    timeout_s: float = 10.0

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"


class _Refuse:
    """What paramiko asks about a host that `file` does not name."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        raise HostError(
            f"{hostname} is unknown: its {key.get_name()} key {key.fingerprint} is not in {self._file}; "
            "compare it with the host's own and add it there"
        )


def log_in(login: Login) -> fabric.Connection:
    """An open connection. HostError, in one line, when the host is not the known one, or refuses, or is silent."""
    file = login.known_hosts.expanduser()
    connection = _connection(login)
    connection.client.set_missing_host_key_policy(_Refuse(file))
    _load(connection.client.get_host_keys(), file)
    try:
        _open(connection, login, file)
        transport = connection.transport
        _check_revoked(transport.get_remote_server_key(), file)
    except BaseException:
        connection.client.close()
        raise
    transport.set_keepalive(_KEEPALIVE_S)
    transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENCE_MS)
    return connection


def _connection(login: Login) -> fabric.Connection:
    key = {} if login.key is None else {"key_filename": str(login.key.expanduser())}
    if login.key is not None and not login.key.expanduser().is_file():
        raise HostError(f"{login}: key file {login.key} is missing")
    return fabric.Connection(
        login.address,
        user=login.user or getpass.getuser(),
        port=login.port,
        config=fabric.Config(overrides={"load_ssh_configs": False}),
        connect_timeout=login.timeout_s,
        connect_kwargs={
            **key,
            "allow_agent": not key,
            "look_for_keys": not key,
            "banner_timeout": login.timeout_s,
            "auth_timeout": login.timeout_s,
            "channel_timeout": login.timeout_s,
        },
    )


def _load(keys: paramiko.HostKeys, file: Path) -> None:
    """Line by line: paramiko stumbles over markers, which `_check_revoked` reads."""
    for number, line in enumerate(_lines(file), 1):
        if not line or line.startswith(("#", "@")):
            continue
        try:
            entry = HostKeyEntry.from_line(line)
        except (InvalidHostKey, paramiko.SSHException) as error:
            raise HostError(f"{file}:{number}: not a host key") from error
        if entry is not None:  # a kind of key that paramiko does not know
            for name in entry.hostnames:
                keys.add(name, entry.key.get_name(), entry.key)


def _lines(file: Path) -> list[str]:
    try:
        return [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise HostError(f"{file}: cannot be read as known hosts: {error}") from error


def _open(connection: fabric.Connection, login: Login, file: Path) -> None:
    try:
        connection.open()
    except paramiko.BadHostKeyException as error:
        raise HostError(
            f"{login} is not the known host: it shows the {error.key.get_name()} key {error.key.fingerprint}, "
            f"{file} has {error.expected_key.fingerprint}; nothing was sent"
        ) from error
    except paramiko.PasswordRequiredException as error:
        raise HostError(f"{login}: key file {login.key} has a passphrase: load it into an agent") from error
    except paramiko.AuthenticationException as error:
        offered = f"key {login.key}" if login.key else "any key of the agent or of ~/.ssh"
        raise HostError(f"{login}: user {connection.user} is not let in by {offered}") from error
    except (paramiko.SSHException, EOFError, OSError, ValueError) as error:
        raise HostError(f"{login}: no SSH connection: {str(error) or type(error).__name__}") from error


def _check_revoked(key: paramiko.PKey, file: Path) -> None:
    for line in _lines(file):
        fields = line.split()
        if fields[:1] == ["@revoked"] and key.get_base64() in fields:
            raise HostError(f"{file} revokes the key {key.fingerprint} that the host shows; nothing was sent")
