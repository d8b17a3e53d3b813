import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import janitor
from orchestrator.janitor import holders
from tests.orchestrator.processes import eventually

HOLD = "import sys, time; held = open(sys.argv[1]); print('open', flush=True); time.sleep(300)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "log").write_text("")
    (tmp_path / "cluster-2").write_text("")
    return tmp_path / "cluster"


def holding(file: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(file)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"open\n"
    return process


@pytest.fixture
def holder(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with holding(folder / "log") as process:
        yield process
        process.kill()


@pytest.fixture
def neighbour(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with holding(folder.with_name("cluster-2")) as process:
        yield process
        process.kill()


def test_a_process_is_known_by_its_open_files(
    folder: Path, holder: subprocess.Popen[bytes], neighbour: subprocess.Popen[bytes]
) -> None:
    assert holders(str(folder)) == {holder.pid}


def test_a_killed_drivers_cluster_and_folder_go(
    folder: Path, holder: subprocess.Popen[bytes], neighbour: subprocess.Popen[bytes]
) -> None:
    code = "import subprocess, sys, time; subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE); time.sleep(300)"
    driver = subprocess.Popen([sys.executable, "-c", code, sys.executable, "-IS", janitor.__file__, str(folder)])
    assert not eventually(lambda: holder.poll() is not None, 0.5)
    driver.kill()
    driver.wait()
    assert eventually(lambda: holder.poll() == -signal.SIGKILL)
    assert eventually(lambda: not folder.exists())
    assert neighbour.poll() is None


def test_the_driver_is_spared_when_it_ends_in_order(folder: Path) -> None:
    with (
        (folder / "log").open(),
        subprocess.Popen([sys.executable, "-IS", janitor.__file__, str(folder)], stdin=subprocess.PIPE),
    ):
        assert os.getpid() in holders(str(folder))
    assert not folder.exists()
