"""A real sshd that is the wrong one, refuses, hangs, dies and comes back."""

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from orchestrator.promotion.host import HostError
from orchestrator.promotion.hosts import ssh
from orchestrator.promotion.hosts.login import Login
from orchestrator.promotion.hosts.ssh import SshHost
from tests.orchestrator.processes import VARIABLE, eventually, marked, new_mark
from tests.orchestrator.promotion.sshd import Sshd, fingerprint, needs_sshd, new_key

pytestmark = needs_sshd

MIB = 1 << 20


def refusal(login: Login) -> str:
    """What a host with this login is refused with, in one line."""
    host = SshHost("gpu1", login)
    with pytest.raises(HostError) as caught:
        host.run(["true"], timeout_s=30)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_unknown_host_is_refused_and_never_added(sshd: Sshd) -> None:
    elsewhere = b"# nobody\nelsewhere " + (sshd.folder / "host.pub").read_bytes()
    for contents in (b"", None, elsewhere):
        sshd.known_hosts.unlink(missing_ok=True)
        if contents is not None:
            sshd.known_hosts.write_bytes(contents)
        told = refusal(sshd.login)
        assert told.startswith(f"gpu1: [127.0.0.1]:{sshd.port} is unknown: ")
        assert fingerprint(sshd.folder / "host.pub") in told
        assert str(sshd.known_hosts) in told
        assert (sshd.known_hosts.read_bytes() if sshd.known_hosts.exists() else None) == contents


def test_a_changed_host_key_is_refused(sshd: Sshd) -> None:
    known = sshd.known_hosts.read_bytes()
    old = fingerprint(sshd.folder / "host.pub")
    sshd.kill()
    sshd.new_host_key()
    sshd.start()
    told = refusal(sshd.login)
    assert told.startswith(f"gpu1: 127.0.0.1:{sshd.port} is not the known host: ")
    assert old in told
    assert fingerprint(sshd.folder / "host.pub") in told
    assert str(sshd.known_hosts) in told
    assert sshd.known_hosts.read_bytes() == known


def test_a_key_that_changes_while_we_are_connected_is_refused_at_the_next_connection(
    sshd: Sshd, remote: SshHost
) -> None:
    assert remote.run(["true"], timeout_s=30).code == 0
    sshd.kill()
    sshd.new_host_key()
    sshd.start()
    with pytest.raises(HostError, match="is not the known host"):
        remote.read(PurePosixPath("/etc/hostname"))


def test_a_known_host_may_be_hashed(sshd: Sshd) -> None:
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(sshd.known_hosts)], check=True, capture_output=True)
    assert b"127.0.0.1" not in sshd.known_hosts.read_bytes()
    host = SshHost("gpu1", sshd.login)
    assert host.run(["true"], timeout_s=30).code == 0
    host.close()


def test_a_revoked_key_is_refused(sshd: Sshd) -> None:
    key = " ".join((sshd.folder / "host.pub").read_text().split()[:2])
    with sshd.known_hosts.open("a") as file:
        file.write(f"@revoked * {key}\n")
    assert "revokes the key SHA256:" in refusal(sshd.login)


def test_known_hosts_that_cannot_be_read_are_named(sshd: Sshd) -> None:
    for blob in ("AAA", "AAAA"):
        sshd.known_hosts.write_text(f"\n[127.0.0.1]:{sshd.port} ssh-ed25519 {blob}\n")
        assert f"{sshd.known_hosts}:2: not a host key" in refusal(sshd.login)
    sshd.known_hosts.write_bytes(b"\xff\n")
    assert f"{sshd.known_hosts}: cannot be read as known hosts" in refusal(sshd.login)


def test_another_key_is_not_let_in(sshd: Sshd) -> None:
    new_key(sshd.folder / "stranger")
    told = refusal(replace(sshd.login, key=sshd.folder / "stranger"))
    assert f"is not let in by key {sshd.folder}/stranger" in told


def test_a_key_that_is_not_there_is_named(sshd: Sshd) -> None:
    assert "key file /no/such/key is missing" in refusal(replace(sshd.login, key=Path("/no/such/key")))


def test_a_key_with_a_passphrase_belongs_into_an_agent(sshd: Sshd) -> None:
    key = sshd.folder / "user"
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", str(key)], check=True)
    assert f"key file {key} has a passphrase: load it into an agent" in refusal(sshd.login)


def test_an_agent_lets_us_in(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    login = replace(sshd.login, key=None)
    assert "is not let in by any key of the agent" in refusal(login) or "no SSH connection" in refusal(login)
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(tmp_path / "agent")], stdout=subprocess.DEVNULL)
    try:
        assert eventually((tmp_path / "agent").exists)
        subprocess.run(["ssh-add", "-q", str(sshd.folder / "user")], check=True)
        host = SshHost("gpu1", login)
        assert host.run(["echo", "in"], timeout_s=30).out == "in\n"
        host.close()
    finally:
        agent.terminate()
        agent.wait()


def test_a_host_that_is_down_is_one_line(sshd: Sshd) -> None:
    sshd.kill()
    assert "no SSH connection" in refusal(sshd.login)


def test_a_host_that_says_nothing_is_given_up(sshd: Sshd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        login = replace(sshd.login, port=mute.getsockname()[1], timeout_s=0.5)
        assert "no SSH connection" in refusal(login)


@pytest.fixture
def mark() -> Iterator[str]:
    value = new_mark()
    yield value
    for pid in marked(value):
        os.kill(pid, signal.SIGKILL)


class Sleeping:
    """A command that sleeps on the host, and what was told about it in the end."""

    def __init__(self, host: SshHost, mark: str, timeout_s: float) -> None:
        self.told: list[str] = []
        self._arguments = (host, ["env", f"{VARIABLE}={mark}", "sleep", "300"], timeout_s)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert eventually(lambda: "sleep 300 " in marked(mark).values() or bool(self.told), 30)

    def _run(self) -> None:
        host, argv, timeout_s = self._arguments
        try:
            host.run(argv, timeout_s=timeout_s)
        except HostError as error:
            self.told.append(str(error))

    def end(self) -> str:
        self._thread.join()
        return self.told[0]


def test_a_connection_lost_during_a_command_is_told_and_made_again(sshd: Sshd, remote: SshHost, mark: str) -> None:
    sleeping = Sleeping(remote, mark, 120)
    sshd.cut()
    assert sleeping.end() == "gpu1: env may or may not have ended: connection lost"
    assert remote.run(["echo", "again"], timeout_s=30).out == "again\n"


def test_what_runs_when_the_connection_is_lost_ends_when_its_time_is_over(
    sshd: Sshd, remote: SshHost, mark: str
) -> None:
    sleeping = Sleeping(remote, mark, 2)
    sshd.cut()
    sleeping.end()
    assert eventually(lambda: not marked(mark), 30)


def test_a_host_that_hangs_during_a_command_is_given_up(
    sshd: Sshd, remote: SshHost, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "_MARGIN_S", -117.0)
    sleeping = Sleeping(remote, mark, 120)
    sshd.signal(signal.SIGSTOP)
    assert sleeping.end() == "gpu1: env may or may not have ended: connection lost"
    assert remote.run(["echo", "again"], timeout_s=120).out == "again\n"


def test_a_connection_lost_between_calls_goes_unnoticed(sshd: Sshd, remote: SshHost, tmp_path: Path) -> None:
    path = PurePosixPath(tmp_path / "file")
    remote.write(path, b"1")
    for act in (
        lambda: remote.read(path),
        lambda: remote.listing(path.parent),
        lambda: remote.run(["true"], timeout_s=30),
        lambda: remote.write(path, b"2"),
        lambda: remote.append(path, "x"),
        lambda: remote.create_exclusive(path, b""),
    ):
        sshd.cut()
        act()
    assert remote.read(path) == b"2x\n"


def test_a_host_that_dies_is_an_error_for_every_call(sshd: Sshd, remote: SshHost, tmp_path: Path) -> None:
    path = PurePosixPath(tmp_path / "file")
    remote.write(path, b"1")
    sshd.kill()
    for act in (
        lambda: remote.read(path),
        lambda: remote.listing(path.parent),
        lambda: remote.run(["true"], timeout_s=30),
        lambda: remote.write(path, b"2"),
        lambda: remote.append(path, "x"),
        lambda: remote.create_exclusive(path, b""),
        lambda: remote.facts(path.parent),
        lambda: remote.forward(80).__enter__(),
    ):
        with pytest.raises(HostError, match="gpu1: "):
            act()
    sshd.start()
    assert remote.read(path) == b"1"


def append(path: Path, line: bytes, size: int, *limits: str) -> int:
    """What a host does to append, here; `limits`: words of `ulimit` first."""
    command = ["sh", "-c", f"ulimit {' '.join(limits)}; {ssh._APPEND}", "sh", str(path), str(path.parent), str(size)]
    return subprocess.run(command, input=line, check=False, capture_output=True).returncode


def test_a_line_is_appended_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    assert append(path, "eins ü".encode(), 7) == 0
    assert append(path, b"cut on its w", 50) != 0
    assert append(path, b"x" * 5000, 5000, "-f", "2") != 0, "as when the disk is full"
    assert append(path, b"two", 3) == 0
    assert path.read_text() == "eins ü\ntwo\n"


def make_folder(folder: Path) -> Path:
    folder.mkdir()
    (folder / "a").write_bytes(os.urandom(MIB))
    (folder / "b").write_bytes(os.urandom(12 * MIB))
    return folder


def same(one: Path, other: Path) -> bool:
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in ("a", "b"))


def test_an_upload_killed_in_the_middle_goes_on_where_it_stopped(sshd: Sshd, remote: SshHost, tmp_path: Path) -> None:
    folder, to = make_folder(tmp_path / "release"), tmp_path / "r1"

    def kill_late(done: int, _: int) -> None:
        if done > 9 * MIB:
            sshd.kill()

    with pytest.raises(HostError, match="gpu1: "):
        remote.upload(folder, PurePosixPath(to), kill_late)
    assert not to.exists()
    there = sum(path.stat().st_size for path in (tmp_path / "r1.part").iterdir())
    assert MIB < there < 13 * MIB
    sshd.start()
    heard: list[int] = []
    remote.upload(folder, PurePosixPath(to), lambda done, _: heard.append(done))
    assert same(folder, to)
    assert heard[1] == there, "what had arrived of both files is not sent again"
    assert not (tmp_path / "r1.part").exists()


def test_an_upload_survives_one_lost_connection(sshd: Sshd, remote: SshHost, tmp_path: Path) -> None:
    folder, to = make_folder(tmp_path / "release"), tmp_path / "r1"
    cuts: list[int] = []

    def cut_once(done: int, _: int) -> None:
        if done > 6 * MIB and not cuts:
            cuts.append(done)
            sshd.cut()

    remote.upload(folder, PurePosixPath(to), cut_once)
    assert cuts
    assert same(folder, to)


def test_an_upload_to_a_full_disk_says_so(sshd: Sshd, remote: SshHost, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "release")
    (tmp_path / "r1.part").mkdir()
    (tmp_path / "r1.part" / "b").symlink_to("/dev/full")
    with pytest.raises(HostError, match=r"gpu1: .*(is the disk full|No space left)"):
        remote.upload(folder, PurePosixPath(tmp_path / "r1"), lambda *_: None)
    assert not (tmp_path / "r1").exists()


def test_a_host_that_forbids_forwarding_says_so_at_once(tmp_path: Path) -> None:
    server = Sshd(tmp_path / "sshd", more="AllowTcpForwarding no")
    server.start()
    try:
        with pytest.raises(HostError, match="no way to"), SshHost("gpu1", server.login).forward(80):
            pass
    finally:
        server.kill()


def test_a_host_with_few_sessions_is_waited_for(tmp_path: Path) -> None:
    server = Sshd(tmp_path / "sshd", more="MaxSessions 2")
    server.start()
    host = SshHost("gpu1", server.login)
    try:
        assert host.run(["true"], timeout_s=30).code == 0
        with ThreadPoolExecutor(6) as callers:
            done = list(callers.map(lambda _: host.run(["sleep", "0.3"], timeout_s=30).code, range(6)))
        assert done == [0] * 6
    finally:
        host.close()
        server.kill()


def test_a_forwarded_port_works_again_after_a_lost_connection(sshd: Sshd, remote: SshHost) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, remote.forward(server.getsockname()[1]) as port:
        server.accept()[0].close()  # whether the host allows it was tried
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", port), 10) as near:
                far, _ = server.accept()
                with far:
                    near.sendall(b"ping")
                    assert far.recv(4) == b"ping"
                    sshd.cut()
                    assert far.recv(1) == b""
