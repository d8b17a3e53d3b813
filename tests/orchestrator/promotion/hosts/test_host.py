"""What every host promises, on this machine and behind a real sshd."""

import contextlib
import hashlib
import os
import socket
import stat
import threading
from pathlib import Path, PurePosixPath

import pytest

from orchestrator.promotion.host import Host, HostError
from tests.orchestrator.processes import VARIABLE, eventually, marked, new_mark

AWKWARD = ["it's", "$(touch /tmp/never)", "a b", "", "*", '"', "\\", "new\nline", "ü", "; exit 9", "-n"]


def far(path: Path) -> PurePosixPath:
    return PurePosixPath(path)


def test_arguments_arrive_as_they_are(host: Host) -> None:
    finished = host.run(["printf", "%s\\0", *AWKWARD], timeout_s=30)
    assert finished.out.split("\0")[:-1] == AWKWARD
    assert (finished.code, finished.err) == (0, "")


def test_exit_code_output_and_errors_are_told_apart(host: Host) -> None:
    finished = host.run(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout_s=30)
    assert (finished.code, finished.out, finished.err) == (3, "out\n", "err\n")


def test_a_signal_is_an_exit_code_above_128(host: Host) -> None:
    assert host.run(["sh", "-c", "kill -TERM $$"], timeout_s=30).code == 143
    assert host.run(["sh", "-c", "kill -KILL $$"], timeout_s=30).code == 137


def test_input_larger_than_any_pipe_comes_back(host: Host) -> None:
    data = os.urandom(1 << 19).hex().encode()
    assert host.run(["cat"], timeout_s=60, input=data).out.encode() == data


def test_a_command_need_not_read_its_input(host: Host) -> None:
    assert host.run(["true"], timeout_s=30, input=b"x" * (1 << 20)).code == 0


def test_a_command_that_is_not_there_is_one_line(host: Host) -> None:
    with pytest.raises(HostError, match="no-such-program cannot be started: No such file or directory"):
        host.run(["no-such-program"], timeout_s=30)


def test_a_command_that_hangs_is_killed(host: Host) -> None:
    mark = new_mark()
    with pytest.raises(HostError, match=r"env did not end within 0\.5 s"):
        host.run(["env", f"{VARIABLE}={mark}", "sh", "-c", "trap '' TERM; sleep 300; true"], timeout_s=0.5)
    assert eventually(lambda: not marked(mark)), marked(mark)


def test_programs_of_the_administrator_are_found(host: Host) -> None:
    path = host.run(["sh", "-c", "echo $PATH"], timeout_s=30).out
    assert "/usr/sbin" in path.strip().split(":")


def test_a_file_is_replaced_as_a_whole(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "it's a file"
    assert host.read(far(path)) is None
    host.write(far(path), b"first", mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with path.open("rb") as held:
        host.write(far(path), b"\0second\xff")
        assert held.read() == b"first"
    assert host.read(far(path)) == b"\0second\xff"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert host.listing(far(tmp_path)) == [path.name]


def test_a_file_that_cannot_be_written_is_one_line(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "absent" / "file"
    for act in (lambda: host.write(far(path), b"x"), lambda: host.append(far(path), "x")):
        with pytest.raises(HostError, match="absent") as caught:
            act()
        assert "\n" not in str(caught.value)


def test_lines_are_appended(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    lines = ["one", "two " * 1000, "drei ü"]
    for line in lines:
        host.append(far(path), line)
    assert path.read_text().splitlines() == lines


def test_folders(host: Host, tmp_path: Path) -> None:
    folder = far(tmp_path / "a b" / "c")
    assert host.listing(folder) == []
    host.make_folder(folder)
    host.make_folder(folder)
    host.write(folder / "x", b"")
    host.write(folder / "B", b"")
    assert host.listing(folder) == ["B", "x"]
    (tmp_path / "link").symlink_to(tmp_path / "a b")
    host.remove(far(tmp_path / "link"))
    assert host.listing(folder) == ["B", "x"]
    host.remove(folder / "x")
    host.remove(far(tmp_path / "a b"))
    host.remove(far(tmp_path / "a b"))
    assert host.listing(far(tmp_path)) == []


def test_only_one_of_many_creates_a_file(host: Host, tmp_path: Path) -> None:
    path = far(tmp_path / "lock")
    won: list[int] = []

    def create(number: int) -> None:
        if host.create_exclusive(path, str(number).encode()):
            won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert host.read(path) == str(won[0]).encode()
    assert host.listing(far(tmp_path)) == ["lock"]


def test_exclusive_creation_that_fails_for_another_reason_is_an_error(host: Host, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="absent"):
        host.create_exclusive(far(tmp_path / "absent" / "lock"), b"")


def make_release(folder: Path) -> dict[str, str]:
    """Files as a release has them: small, large, empty, deep, executable, linked. Digests by name."""
    contents = {"manifest.json": b"{}", "empty": b"", "bin/serve it": b"#!/bin/sh\n", "a/b/ü": os.urandom(3 << 20)}
    for name, data in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (folder / "bin/serve it").chmod(0o755)
    blob = folder.parent / "blob"
    blob.write_bytes(b"weights")
    (folder / "model").symlink_to(blob)
    return {name: hashlib.sha256(data).hexdigest() for name, data in (contents | {"model": b"weights"}).items()}


def digests(folder: Path) -> dict[str, str]:
    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            found[path.relative_to(folder).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def test_an_upload_is_the_folder_and_nothing_else(host: Host, tmp_path: Path) -> None:
    expected = make_release(tmp_path / "release")
    to = tmp_path / "there" / "r1"
    host.make_folder(far(to.parent))
    heard: list[tuple[int, int]] = []
    host.upload(tmp_path / "release", far(to), lambda done, total: heard.append((done, total)))
    assert digests(to) == expected
    assert os.access(to / "bin/serve it", os.X_OK)
    assert not os.access(to / "manifest.json", os.X_OK)
    assert not (to / "model").is_symlink()
    assert host.listing(far(to.parent)) == ["r1"]
    total = heard[-1][1]
    assert heard[-1][0] == total == sum(path.stat().st_size for path in to.rglob("*") if path.is_file())
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)


def test_the_same_upload_again_sends_nothing(host: Host, tmp_path: Path) -> None:
    make_release(tmp_path / "release")
    to = tmp_path / "r1"
    host.upload(tmp_path / "release", far(to), lambda *_: None)
    inodes = {path: path.stat().st_ino for path in to.rglob("*")}
    heard: list[tuple[int, int]] = []
    host.upload(tmp_path / "release", far(to), lambda done, total: heard.append((done, total)))
    assert inodes == {path: path.stat().st_ino for path in to.rglob("*")}
    assert heard == [(heard[0][1], heard[0][1])]


def test_what_was_changed_there_is_put_right(host: Host, tmp_path: Path) -> None:
    expected = make_release(tmp_path / "release")
    to = tmp_path / "r1"
    host.upload(tmp_path / "release", far(to), lambda *_: None)
    (to / "manifest.json").write_bytes(b"[]")
    (to / "extra").write_bytes(b"x")
    (to / "empty").unlink()
    host.upload(tmp_path / "release", far(to), lambda *_: None)
    assert digests(to) == expected


def test_an_upload_goes_on_where_another_stopped(host: Host, tmp_path: Path) -> None:
    expected = make_release(tmp_path / "release")
    part = tmp_path / "r1.part"
    (part / "a/b").mkdir(parents=True)
    (part / "a/b/ü").write_bytes((tmp_path / "release/a/b/ü").read_bytes()[: 2 << 20])
    (part / "left over").write_bytes(b"x")
    (part / "manifest.json").write_bytes(b"{} and more")
    heard: list[int] = []
    host.upload(tmp_path / "release", far(tmp_path / "r1"), lambda done, _: heard.append(done))
    assert digests(tmp_path / "r1") == expected
    assert heard[0] == 2 << 20, "what was there counts as done"


def test_a_part_that_is_wrong_is_named_and_sent_anew_next_time(host: Host, tmp_path: Path) -> None:
    expected = make_release(tmp_path / "release")
    part = tmp_path / "r1.part"
    (part / "a/b").mkdir(parents=True)
    (part / "a/b/ü").write_bytes(b"\0" * (1 << 20))
    with pytest.raises(HostError, match="ü differs from what was sent"):
        host.upload(tmp_path / "release", far(tmp_path / "r1"), lambda *_: None)
    assert not (tmp_path / "r1").exists()
    host.upload(tmp_path / "release", far(tmp_path / "r1"), lambda *_: None)
    assert digests(tmp_path / "r1") == expected


def test_what_cannot_be_sent_is_refused_before_anything_is(host: Host, tmp_path: Path) -> None:
    folder = tmp_path / "release"
    folder.mkdir()
    (folder / "dead").symlink_to(tmp_path / "nowhere")
    with pytest.raises(HostError, match="dead: cannot be sent"):
        host.upload(folder, far(tmp_path / "r1"), lambda *_: None)
    with pytest.raises(HostError, match="absent: not a folder"):
        host.upload(tmp_path / "absent", far(tmp_path / "r1"), lambda *_: None)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.5"])
def test_a_forwarded_port_reaches_the_host(host: Host, address: str) -> None:
    data = os.urandom(1 << 20)
    with socket.create_server((address, 0)) as server:
        threading.Thread(target=_echo, args=(server,), daemon=True).start()
        with host.forward(server.getsockname()[1], address) as port:
            for _ in range(2):
                with socket.create_connection(("127.0.0.1", port), 10) as client:
                    threading.Thread(target=client.sendall, args=(data,), daemon=True).start()
                    assert _receive(client, len(data)) == data


def test_a_forwarded_port_behind_which_nothing_listens_is_refused_or_closed(host: Host) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    with host.forward(free) as port:
        assert _first_byte(port) == b""


def _first_byte(port: int) -> bytes:
    try:
        with socket.create_connection(("127.0.0.1", port), 10) as client:
            return client.recv(1)
    except ConnectionError:
        return b""


def _echo(server: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the test closes it
        while True:
            client, _ = server.accept()
            threading.Thread(target=_echo_one, args=(client,), daemon=True).start()


def _echo_one(client: socket.socket) -> None:
    with client:
        while data := client.recv(65536):
            client.sendall(data)


def _receive(client: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        parts.append(client.recv(65536))
        assert parts[-1]
        size -= len(parts[-1])
    return b"".join(parts)


def test_facts_are_this_machines(host: Host, tmp_path: Path) -> None:
    facts = host.facts(far(tmp_path / "not" / "yet"))
    free = os.statvfs(tmp_path)
    assert abs(facts.disk_free_bytes - free.f_bavail * free.f_frsize) < 4 << 30
    assert facts.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert facts.kernel == os.uname().release
    assert facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert "python3" in facts.tools
