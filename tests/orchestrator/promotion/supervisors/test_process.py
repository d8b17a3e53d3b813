"""Servers under a keeper: real processes, each of them killed in its turn."""

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from orchestrator.promotion.host import HostError, Unit
from orchestrator.promotion.hosts.local import LocalHost
from orchestrator.promotion.hosts.ssh import SshHost
from orchestrator.promotion.supervisors.keeper import boot
from orchestrator.promotion.supervisors.keeper.files import Folder
from orchestrator.promotion.supervisors.process import ProcessSupervisor
from tests.orchestrator.processes import VARIABLE, eventually, marked
from tests.orchestrator.promotion import crontab
from tests.orchestrator.promotion.sshd import Sshd, needs_sshd

HOST = LocalHost()
SUPERVISOR = ProcessSupervisor(sys.executable)
FAMILY = "trap '' TERM; (setsid sleep 300 &); (sleep 299 >/dev/null 2>&1 &); env -i sleep 301 & sleep 302; true"
"""A server that ignores SIGTERM, with a child of its own session, one that prints elsewhere and one without its
environment."""

ROUTER = """
import os, signal, time
if os.fork() == 0:
    def finish(*_):
        time.sleep(2)
        print("finished", flush=True)
        os._exit(0)
    signal.signal(signal.SIGQUIT, finish)
print("up", flush=True)
while True:
    time.sleep(0.1)
"""
MakeUnit = Callable[..., Unit]


def started(unit: Unit) -> Unit:
    SUPERVISOR.install(HOST, unit)
    SUPERVISOR.start(HOST, unit)
    return unit


def state(unit: Unit) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(unit.folder) / "state.json").read_text())
    return found


def server(unit: Unit) -> int | None:
    """Process id of the server; None between two."""
    process = state(unit)["server"]
    return None if process is None else int(process["pid"])


def printing(unit: Unit) -> set[int]:
    """Processes that print into the unit's log, whatever their environment."""
    log = Path(unit.folder) / "server.log"
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "fd/1").samefile(log):
                found.add(int(entry.name))
        except OSError:
            continue
    return found


def test_a_server_runs_until_it_is_stopped(make_unit: MakeUnit, mark: str) -> None:
    unit = make_unit("echo hello; echo oops >&2; exec sleep 300")
    assert not SUPERVISOR.alive(HOST, unit)
    assert SUPERVISOR.log(HOST, unit, 10) == ""
    SUPERVISOR.stop(HOST, unit, 1)
    SUPERVISOR.install(HOST, unit)
    assert not SUPERVISOR.alive(HOST, unit)
    SUPERVISOR.start(HOST, unit)
    assert SUPERVISOR.alive(HOST, unit)
    assert eventually(lambda: SUPERVISOR.log(HOST, unit, 10) == "hello\noops\n")
    assert SUPERVISOR.log(HOST, unit, 1) == "oops\n"
    pid, keeper = server(unit), state(unit)["keeper"]["pid"]
    assert os.getsid(keeper) == keeper, "what ends the command that started it leaves it alone"
    SUPERVISOR.install(HOST, unit)
    SUPERVISOR.start(HOST, unit)
    assert server(unit) == pid
    SUPERVISOR.stop(HOST, unit, 10)
    SUPERVISOR.stop(HOST, unit, 10)
    assert not SUPERVISOR.alive(HOST, unit)
    assert marked(mark) == {}
    SUPERVISOR.start(HOST, unit)
    assert SUPERVISOR.alive(HOST, unit)
    SUPERVISOR.remove(HOST, unit)
    SUPERVISOR.remove(HOST, unit)
    assert marked(mark) == {}
    assert not Path(unit.folder).exists()


def test_a_server_gets_its_own_environment_and_no_other(
    make_unit: MakeUnit, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret of the orchestrator")
    env = {VARIABLE: mark, "API_KEY": "a key"}
    unit = started(make_unit("env; pwd; exec sleep 300", env=env, gpus=("GPU-1", "GPU-2"), cwd=PurePosixPath("/usr")))
    assert eventually(lambda: SUPERVISOR.log(HOST, unit, 99).endswith("/usr\n"))
    lines = SUPERVISOR.log(HOST, unit, 99).splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    assert found.keys() - {"PWD", "OLDPWD", "SHLVL", "_", "LANG"} == {
        "API_KEY", "CUDA_VISIBLE_DEVICES", "HOME", "ORCHESTRATE_UNIT", "PATH", VARIABLE,
    }  # fmt: skip
    assert found["CUDA_VISIBLE_DEVICES"] == "GPU-1,GPU-2"
    assert (Path(unit.folder) / "unit.json").stat().st_mode & 0o777 == 0o600
    keeper = state(unit)["keeper"]["pid"]
    assert b"a key" not in Path(f"/proc/{keeper}/cmdline").read_bytes()
    SUPERVISOR.stop(HOST, unit, 10)


def test_a_killed_server_is_started_again_and_what_it_left_is_ended(make_unit: MakeUnit, mark: str) -> None:
    unit = started(make_unit(FAMILY))
    assert eventually(lambda: len(printing(unit)) == 4)
    before, first = printing(unit) | marked(mark).keys(), server(unit)
    assert first is not None
    assert len(before - {state(unit)["keeper"]["pid"]}) == 5
    os.kill(first, signal.SIGKILL)
    assert eventually(lambda: server(unit) not in (None, first) and SUPERVISOR.alive(HOST, unit))
    assert state(unit)["restarts"] == 1
    assert state(unit)["exit_code"] == 137
    assert not before & (printing(unit) | marked(mark).keys())
    assert "server ended with exit code 137" in SUPERVISOR.log(HOST, unit, 5)
    SUPERVISOR.stop(HOST, unit, 0.5)
    assert eventually(lambda: not printing(unit))


def test_a_server_that_always_fails_is_started_more_and_more_rarely(make_unit: MakeUnit) -> None:
    unit = started(make_unit("date +%s.%N; exit 7"))
    assert eventually(lambda: state(unit)["restarts"] == 3)
    assert state(unit)["exit_code"] == 7
    first, second, third = (float(line) for line in SUPERVISOR.log(HOST, unit, 99).splitlines() if "keeper" not in line)
    assert second - first >= 0.5
    assert third - second >= 1.0
    SUPERVISOR.stop(HOST, unit, 10)
    assert not SUPERVISOR.alive(HOST, unit)


def test_without_its_keeper_a_server_counts_as_dead_and_start_takes_it_over(make_unit: MakeUnit, mark: str) -> None:
    unit = started(make_unit(FAMILY))
    assert eventually(lambda: len(printing(unit)) == 4)
    before = printing(unit)
    os.kill(state(unit)["keeper"]["pid"], signal.SIGKILL)
    assert eventually(lambda: not SUPERVISOR.alive(HOST, unit))
    assert printing(unit) == before, "it goes on serving"
    SUPERVISOR.start(HOST, unit)
    assert SUPERVISOR.alive(HOST, unit)
    assert printing(unit) == before, "it goes on"
    first = server(unit)
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert eventually(lambda: server(unit) not in (None, first) and len(printing(unit)) == 4)
    assert "exit code unknown" in SUPERVISOR.log(HOST, unit, 9)
    assert not before & printing(unit)
    os.kill(state(unit)["keeper"]["pid"], signal.SIGKILL)
    before = printing(unit)
    SUPERVISOR.install(HOST, replace(unit, env={**unit.env, "NEW": "1"}))
    SUPERVISOR.start(HOST, unit)
    assert eventually(lambda: len(printing(unit)) == 4)
    assert not before & printing(unit), "another command is another server"
    SUPERVISOR.stop(HOST, unit, 0.5)
    assert eventually(lambda: not printing(unit))


@pytest.mark.parametrize("also_the_server", [False, True])
def test_stop_finds_what_a_killed_keeper_left(make_unit: MakeUnit, mark: str, also_the_server: bool) -> None:
    unit = started(make_unit(FAMILY))
    assert eventually(lambda: len(printing(unit)) == 4)
    os.kill(state(unit)["keeper"]["pid"], signal.SIGKILL)
    if also_the_server:
        os.kill(state(unit)["server"]["pid"], signal.SIGKILL)
    SUPERVISOR.stop(HOST, unit, 0.5)
    assert eventually(lambda: not printing(unit))
    assert marked(mark) == {}


def test_stop_lets_a_server_finish_its_work(make_unit: MakeUnit, mark: str) -> None:
    unit = started(make_unit("trap 'sleep 0.5; echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"))
    assert eventually(lambda: "up" in SUPERVISOR.log(HOST, unit, 9))
    SUPERVISOR.stop(HOST, unit, 30)
    assert "bye\n" in SUPERVISOR.log(HOST, unit, 9)
    assert marked(mark) == {}


def test_a_process_that_got_the_number_of_ours_is_left_alone(make_unit: MakeUnit) -> None:
    unit = make_unit("exec sleep 300")
    SUPERVISOR.install(HOST, unit)
    stranger = subprocess.Popen(["sleep", "300"])
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        process = {"pid": stranger.pid, "started": 1, "boot": boot}
        written = {"keeper": process, "server": process, "since": 0.0, "restarts": 0, "exit_code": None}
        (Path(unit.folder) / "state.json").write_text(json.dumps(written))
        assert not SUPERVISOR.alive(HOST, unit)
        SUPERVISOR.stop(HOST, unit, 1)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_command_that_is_not_there_is_one_line(make_unit: MakeUnit) -> None:
    unit = make_unit("", argv=("/no/such/server",))
    SUPERVISOR.install(HOST, unit)
    with pytest.raises(HostError, match=r"orchestrate-r1-0 did not start: .*/no/such/server") as caught:
        SUPERVISOR.start(HOST, unit)
    assert "\n" not in str(caught.value)
    assert not SUPERVISOR.alive(HOST, unit)


@pytest.mark.parametrize("contents", ["", "[]", '{"argv": ["true"]}'])
def test_a_unit_file_that_is_none_is_one_line(make_unit: MakeUnit, contents: str) -> None:
    unit = make_unit("true")
    SUPERVISOR.install(HOST, unit)
    (Path(unit.folder) / "unit.json").write_text(contents)
    with pytest.raises(HostError, match=r"unit\.json: not a unit"):
        SUPERVISOR.start(HOST, unit)


def test_starts_at_the_same_time_give_one_server(make_unit: MakeUnit, mark: str) -> None:
    unit = make_unit("exec sleep 300")
    SUPERVISOR.install(HOST, unit)
    threads = [threading.Thread(target=SUPERVISOR.start, args=(HOST, unit)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(marked(mark).values()) == ["sleep 300 "]
    SUPERVISOR.stop(HOST, unit, 10)


def test_a_server_that_takes_too_much_memory_is_killed(make_unit: MakeUnit, python: str) -> None:
    script = "import time; held = bytearray(96 << 20); print('full', flush=True); time.sleep(300)"
    unit = started(make_unit("", argv=(python, "-c", script), memory_bytes=64 << 20))
    assert eventually(lambda: state(unit)["restarts"] > 0)
    assert "more than its 64 MiB: killed" in SUPERVISOR.log(HOST, unit, 99)
    SUPERVISOR.stop(HOST, unit, 10)
    roomy = replace(unit, memory_bytes=512 << 20)
    size = len(SUPERVISOR.log(HOST, unit, 999))
    started(roomy)
    assert eventually(lambda: "full" in SUPERVISOR.log(HOST, roomy, 999)[size:])
    assert SUPERVISOR.alive(HOST, roomy)
    SUPERVISOR.stop(HOST, roomy, 10)


def test_an_end_comes_by_itself_and_a_start_forgets_it(make_unit: MakeUnit, mark: str, cron: Path) -> None:
    unit = started(make_unit("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"))
    assert eventually(lambda: "up" in SUPERVISOR.log(HOST, unit, 9))
    pid = server(unit)
    SUPERVISOR.expire(HOST, unit, 4)
    SUPERVISOR.start(HOST, unit)
    time.sleep(6)
    assert (server(unit), SUPERVISOR.lost_by_reboot(HOST, unit)) == (pid, "")
    SUPERVISOR.expire(HOST, unit, 1)
    assert SUPERVISOR.lost_by_reboot(HOST, unit) == "the crontab has no line for it"
    assert eventually(lambda: not SUPERVISOR.alive(HOST, unit))
    assert marked(mark) == {}
    assert SUPERVISOR.log(HOST, unit, 2).startswith("bye")
    assert crontab.reboot(cron, str(unit.folder)) == 0
    SUPERVISOR.start(HOST, unit)
    assert SUPERVISOR.alive(HOST, unit)
    SUPERVISOR.stop(HOST, unit, 10)
    assert crontab.reboot(cron, str(unit.folder)) == 0, "what was stopped stays down"


def test_an_end_comes_between_two_starts_of_a_server_that_fails(make_unit: MakeUnit) -> None:
    unit = started(make_unit("exit 3"))
    keeper = state(unit)["keeper"]["pid"]
    SUPERVISOR.expire(HOST, unit, 0)
    assert eventually(lambda: not Path(f"/proc/{keeper}").exists())


def test_an_end_comes_to_a_server_whose_keeper_was_killed(make_unit: MakeUnit, mark: str) -> None:
    unit = started(make_unit("exec sleep 300"))
    keeper = state(unit)["keeper"]["pid"]
    os.kill(keeper, signal.SIGKILL)
    assert eventually(lambda: not Path(f"/proc/{keeper}").exists())
    assert marked(mark)
    SUPERVISOR.expire(HOST, unit, 0)
    assert eventually(lambda: marked(mark) == {})


def test_cron_starts_it_again_as_it_was_started(
    make_unit: MakeUnit, mark: str, cron: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = crontab.lines(cron)
    monkeypatch.setenv("PATH", str(tmp_path / "100%"), prepend=":")
    unit = started(make_unit('echo "$PATH"; exec sleep 300', folder=PurePosixPath(tmp_path / "a unit, 100%")))
    assert eventually(lambda: "100%" in SUPERVISOR.log(HOST, unit, 9))
    os.kill(state(unit)["keeper"]["pid"], signal.SIGKILL)
    os.kill(state(unit)["server"]["pid"], signal.SIGKILL)
    assert eventually(lambda: marked(mark) == {})
    assert crontab.reboot(cron, f"# orchestrate {unit.folder}") == 1
    assert SUPERVISOR.alive(HOST, unit)
    assert eventually(lambda: SUPERVISOR.log(HOST, unit, 9).count(f"{tmp_path}/100%:") == 2)
    SUPERVISOR.start(HOST, unit)
    assert len(crontab.lines(cron)) == len(before) + 1
    SUPERVISOR.remove(HOST, unit)
    assert crontab.lines(cron) == before


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (None, "there is no cron"),
        ("echo you are not allowed to use this program >&2; exit 1", "crontab says: you are not allowed"),
        ("[ $1 = -l ] && echo '# theirs' || exit 1", "the crontab has no line for it"),
    ],
)
def test_without_cron_it_runs_and_a_reboot_loses_it(
    make_unit: MakeUnit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str | None, reason: str
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "sleep", "env"):
        (tools / name).symlink_to(str(shutil.which(name)))
    if program:
        (tools / "crontab").write_text(f"#!/bin/sh\n{program}\n")
        (tools / "crontab").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setattr("orchestrator.promotion.hosts.local.SBIN", str(tools))
    unit = started(make_unit("exec sleep 300"))
    assert SUPERVISOR.alive(HOST, unit)
    assert SUPERVISOR.lost_by_reboot(HOST, unit).startswith(reason)
    SUPERVISOR.stop(HOST, unit, 10)


def test_a_home_that_cannot_be_locked_costs_the_line_and_not_the_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:  # as NFS does for a folder
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.delenv("HOME")
    boot.enable(Folder(tmp_path))
    assert boot.lost(Folder(tmp_path)) == "the crontab has no line for it"


def test_what_a_dead_router_answers_is_finished_beside_the_next_one(
    make_unit: MakeUnit, mark: str, python: str
) -> None:
    """A worker outlives its killed master, as nginx's do, and is asked to finish."""
    unit = started(make_unit("", argv=(python, "-c", ROUTER), router=True))
    assert eventually(lambda: len(marked(mark)) >= 2 and "up" in SUPERVISOR.log(HOST, unit, 9))
    first = server(unit)
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert eventually(lambda: server(unit) not in (None, first))
    assert "finished" not in SUPERVISOR.log(HOST, unit, 9)
    assert eventually(lambda: "finished" in SUPERVISOR.log(HOST, unit, 9))
    SUPERVISOR.stop(HOST, unit, 0)


def test_a_server_reads_its_configuration_again(make_unit: MakeUnit) -> None:
    unit = started(make_unit("trap 'echo again' HUP; echo up; while :; do sleep 0.05; done"))
    assert eventually(lambda: "up" in SUPERVISOR.log(HOST, unit, 9))
    SUPERVISOR.reload(HOST, unit)
    assert eventually(lambda: "again" in SUPERVISOR.log(HOST, unit, 9))
    SUPERVISOR.stop(HOST, unit, 0)
    with pytest.raises(HostError, match=r"did not reload: .*does not run"):
        SUPERVISOR.reload(HOST, unit)


@needs_sshd
def test_behind_ssh_a_server_outlives_the_connection(make_unit: MakeUnit, mark: str, tmp_path: Path) -> None:
    sshd = Sshd(tmp_path / "sshd")
    sshd.start()
    host = SshHost("gpu1", sshd.login)
    try:
        unit = make_unit("echo it\\'s up; exec sleep 300")
        SUPERVISOR.install(host, unit)
        SUPERVISOR.start(host, unit)
        pid = server(unit)
        sshd.kill()
        sshd.start()
        assert SUPERVISOR.alive(host, unit)
        assert SUPERVISOR.log(host, unit, 9) == "it's up\n"
        assert server(unit) == pid
        SUPERVISOR.remove(host, unit)
        assert marked(mark) == {}
    finally:
        host.close()
        sshd.kill()
