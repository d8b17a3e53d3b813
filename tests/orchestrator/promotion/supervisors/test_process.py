"""Servers under a keeper: real processes, each of them killed in its turn."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from orchestrator.promotion.host import HostError, Unit
from orchestrator.promotion.hosts.local import LocalHost
from orchestrator.promotion.hosts.ssh import SshHost
from orchestrator.promotion.supervisors.process import ProcessSupervisor
from tests.orchestrator.processes import VARIABLE, eventually, marked
from tests.orchestrator.promotion.sshd import Sshd, needs_sshd

HOST = LocalHost()
SUPERVISOR = ProcessSupervisor(sys.executable)
FAMILY = "trap '' TERM; (setsid sleep 300 &); (sleep 299 >/dev/null 2>&1 &); env -i sleep 301 & sleep 302; true"
"""A server that ignores SIGTERM, with a child of its own session, one that prints elsewhere and one without its
environment."""

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
    unit = started(make_unit("env; pwd; exec sleep 300", env=env, gpu="GPU-1", cwd=PurePosixPath("/usr")))
    assert eventually(lambda: SUPERVISOR.log(HOST, unit, 99).endswith("/usr\n"))
    lines = SUPERVISOR.log(HOST, unit, 99).splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    assert found.keys() - {"PWD", "OLDPWD", "SHLVL", "_", "LANG"} == {
        "API_KEY", "CUDA_VISIBLE_DEVICES", "HOME", "ORCHESTRATE_UNIT", "PATH", VARIABLE,
    }  # fmt: skip
    assert found["CUDA_VISIBLE_DEVICES"] == "GPU-1"
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


def test_without_its_keeper_a_server_counts_as_dead_and_start_replaces_it(make_unit: MakeUnit, mark: str) -> None:
    unit = started(make_unit(FAMILY))
    assert eventually(lambda: len(printing(unit)) == 4)
    before = printing(unit)
    os.kill(state(unit)["keeper"]["pid"], signal.SIGKILL)
    assert eventually(lambda: not SUPERVISOR.alive(HOST, unit))
    assert printing(unit) == before, "it goes on serving"
    SUPERVISOR.start(HOST, unit)
    assert SUPERVISOR.alive(HOST, unit)
    assert eventually(lambda: len(printing(unit)) == 4)
    assert not before & printing(unit)
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
