"""A real sshd on a loopback address, with a host key, a configuration and a user key of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orchestrator.leash import descendants
from orchestrator.ports import free_port
from orchestrator.promotion.hosts.login import Login
from tests.orchestrator.processes import eventually

PROGRAM = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")

needs_sshd = pytest.mark.skipif(PROGRAM is None, reason="sshd is not installed (apt: openssh-server)")

_CONFIGURATION = """\
Port {port}
ListenAddress {address}
HostKey {folder}/host
PidFile none
AuthorizedKeysFile {folder}/user.pub
AuthenticationMethods publickey
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
Subsystem sftp internal-sftp
SetEnv HOME={folder} "PATH={path}"
{more}
"""


@dataclass
class Sshd:
    """`login` reaches it: key, user and known_hosts are right, until a test makes them wrong."""

    folder: Path
    address: str = "127.0.0.1"
    more: str = ""
    port: int = field(default=0, init=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.new_host_key()
        new_key(self.folder / "user")
        self.port = free_port(self.address)
        self.know(self.folder / "host.pub")

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def login(self) -> Login:
        return Login(self.address, self.port, None, self.folder / "user", self.known_hosts, timeout_s=10)

    def new_host_key(self) -> None:
        new_key(self.folder / "host")

    def know(self, public: Path) -> None:
        """Have known_hosts say that this is the host's key."""
        kind, blob, *_ = public.read_text().split()
        self.known_hosts.write_text(f"[{self.address}]:{self.port} {kind} {blob}\n")

    def start(self) -> None:
        assert PROGRAM is not None
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # it insists, as root
        configuration = self.folder / "sshd_config"
        configuration.write_text(
            _CONFIGURATION.format(
                port=self.port, address=self.address, folder=self.folder, path=os.environ["PATH"], more=self.more
            )
        )
        with (self.folder / "sshd.log").open("ab") as log:
            self._process = subprocess.Popen([PROGRAM, "-D", "-e", "-f", str(configuration)], stderr=log)
        assert eventually(self._listens), (self.folder / "sshd.log").read_text()

    def kill(self) -> None:
        """SIGKILL for it and its sessions; the commands in them go on."""
        if self._process is None:
            return
        sessions = self._sessions()
        self._process.kill()
        self._process.wait()
        _send(sessions, signal.SIGKILL)
        self._process = None

    def cut(self) -> None:
        """SIGKILL for its sessions only: connections are lost, new ones are welcome."""
        self.signal(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all its sessions."""
        _send(self._sessions(), number)

    def _sessions(self) -> set[int]:
        assert self._process is not None
        return {pid for pid in descendants(self._process.pid) if _name(pid) == "sshd"}

    def _listens(self) -> bool:
        try:
            socket.create_connection((self.address, self.port), 1).close()
        except OSError:
            return False
        return True


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _send(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def new_key(path: Path) -> None:
    """An ed25519 key pair at `path` and `path`.pub, in place of what was there."""
    path.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def fingerprint(public: Path) -> str:
    """As OpenSSH prints it: SHA256:..."""
    out = subprocess.run(["ssh-keygen", "-lf", str(public)], check=True, capture_output=True, text=True).stdout
    return out.split()[1]
