import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import leash
from orchestrator.leash import descendants
from tests.orchestrator.processes import VARIABLE, eventually, marked, new_mark, parent

STUBBORN = "trap '' TERM; (setsid sleep 300 &); sleep 300; true"
"""A program that ignores SIGTERM, with a child and a grandchild in a session of its own."""

OWNER = """
import subprocess, sys, time
held = subprocess.Popen([sys.executable, "-IS", *sys.argv[1:]], stdin=subprocess.PIPE, start_new_session=True)
time.sleep(300)
"""


def command(program: str, grace: float = 0.3) -> list[str]:
    return [leash.__file__, "--grace", str(grace), "--", "sh", "-c", program]


def run(program: str) -> subprocess.CompletedProcess[bytes]:
    """Run a program on a leash that this test holds until the program ends by itself."""
    with subprocess.Popen(
        [sys.executable, "-IS", *command(program)], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as held:
        assert held.stderr is not None
        code = held.wait(10)
        return subprocess.CompletedProcess([], code, b"", held.stderr.read())


@pytest.fixture
def mark() -> Iterator[str]:
    value = new_mark()
    yield value
    for pid in marked(value):
        os.kill(pid, signal.SIGKILL)


def start_owner(mark: str) -> dict[str, int]:
    """An owner, its two leashes and the stubborn program with everything it starts. Process ids by their part."""
    environment = os.environ | {VARIABLE: mark}
    owner = subprocess.Popen([sys.executable, "-c", OWNER, *command(STUBBORN)], env=environment)
    assert eventually(lambda: sum("sleep 300" in line and "trap" not in line for line in marked(mark).values()) == 2)
    lines = marked(mark)
    program = next(pid for pid, line in lines.items() if line.startswith("sh -c trap"))
    inner = parent(program)
    outer = parent(inner)
    assert parent(outer) == owner.pid
    return {"owner": owner.pid, "outer": outer, "inner": inner, "program": program}


@pytest.mark.parametrize("victim", ["owner", "outer", "inner", "program"])
def test_nothing_below_outlives_a_kill(victim: str, mark: str) -> None:
    parts = start_owner(mark)
    os.kill(parts[victim], signal.SIGKILL)
    remaining = set() if victim == "owner" else {parts["owner"]}
    assert eventually(lambda: set(marked(mark)) <= remaining), marked(mark)


def test_sigterm_to_the_leash_ends_everything(mark: str) -> None:
    parts = start_owner(mark)
    os.kill(parts["outer"], signal.SIGTERM)
    assert eventually(lambda: set(marked(mark)) <= {parts["owner"]}), marked(mark)


def test_a_program_that_obeys_sigterm_may_finish_its_work(tmp_path: Path) -> None:
    done = tmp_path / "done"
    program = f"trap 'sleep 0.2; echo bye > {done}; exit 0' TERM; while :; do sleep 0.05; done"
    held = subprocess.Popen([sys.executable, "-IS", *command(program, grace=5)], stdin=subprocess.PIPE)
    time.sleep(0.4)
    assert held.stdin is not None
    held.stdin.close()
    assert held.wait(10) == 0
    assert done.read_text() == "bye\n"


@pytest.mark.parametrize(("program", "code"), [("exit 7", 7), ("true", 0), ("kill -9 $$", 137)])
def test_the_exit_code_is_the_programs(program: str, code: int) -> None:
    assert run(program).returncode == code


def test_a_program_s_stdin_does_not_end_before_the_leash_does() -> None:
    """What a container's client holds on to: see engines.containers."""
    assert run("timeout 0.5 cat").returncode == 124


def test_what_a_program_leaves_behind_ends_with_it(mark: str) -> None:
    environment = os.environ | {VARIABLE: mark}
    held = subprocess.Popen(
        [sys.executable, "-IS", *command("(setsid sleep 300 &); exit 3")], stdin=subprocess.PIPE, env=environment
    )
    assert held.wait(10) == 3
    assert marked(mark) == {}


def test_a_program_that_is_not_there_is_one_line() -> None:
    with subprocess.Popen(
        [sys.executable, "-IS", leash.__file__, "--", "/no/such/program"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as held:
        assert held.stderr is not None
        assert held.wait(10) == 127
        assert held.stderr.read() == b"/no/such/program: cannot be started: No such file or directory\n"


@pytest.mark.parametrize("arguments", [[], ["--"], ["sleep", "1"], ["--grace", "--", "true"]])
def test_wrong_arguments_are_refused(arguments: list[str]) -> None:
    result = subprocess.run([sys.executable, leash.__file__, *arguments], capture_output=True, timeout=10, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith(b"usage: ")


def test_the_end_of_the_thread_that_started_it_is_not_the_owners() -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        started.append(subprocess.Popen([sys.executable, "-IS", *command("sleep 0.8; exit 5")], stdin=subprocess.PIPE))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert started[0].wait(10) == 5


def test_descendants_are_found_at_any_depth() -> None:
    shell = subprocess.Popen(["sh", "-c", "sh -c 'sleep 300; true'; true"])
    try:
        assert eventually(lambda: len(descendants(shell.pid)) == 2)
        assert descendants(shell.pid) < descendants(os.getpid())
    finally:
        for pid in descendants(shell.pid) | {shell.pid}:
            os.kill(pid, signal.SIGKILL)
        shell.wait()
