"""The keeper's parts by themselves."""

import ast
import os
import subprocess
import sys
from pathlib import Path

from orchestrator.promotion.supervisors import archive, keeper
from orchestrator.promotion.supervisors.keeper.log import KEPT, Log


def test_the_archive_is_the_same_every_time_and_needs_nothing_installed(tmp_path: Path) -> None:
    assert archive.build() == archive.build()
    path = tmp_path / "keeper.pyz"
    path.write_bytes(archive.build())
    command = [sys.executable, "-IS", str(path), "status", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env={}, check=True)
    assert done.stdout == "{}\n"


def test_the_keeper_imports_the_standard_library_only() -> None:
    for path in Path(keeper.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert {alias.name.split(".")[0] for alias in node.names} <= sys.stdlib_module_names
            if isinstance(node, ast.ImportFrom) and not node.level:
                assert str(node.module).split(".")[0] in sys.stdlib_module_names


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "keeper.pyz"
    path.write_bytes(archive.build())
    done = subprocess.run([sys.executable, "-IS", str(path), "stop"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("usage: ")


def test_a_log_stays_bounded_while_a_server_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    log = Log(path, limit=1000)
    for number in range(20):
        os.write(log.descriptor, f"{number:03}".encode() * 100)
        log.rotate()
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["server.log", *(f"server.log.{number}" for number in range(1, KEPT + 1))]
    assert all(each.stat().st_size < 2000 for each in tmp_path.iterdir())
    newest, oldest = (path.with_name(f"server.log.{number}").read_text() for number in (1, KEPT))
    assert newest > oldest
    os.write(log.descriptor, b"the end\n")
    assert path.read_text().endswith("the end\n")


def test_a_log_that_cannot_be_kept_is_cut_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    log = Log(path, limit=10)
    (tmp_path / "server.log.2").touch()
    (tmp_path / f"server.log.{KEPT}").mkdir()
    os.write(log.descriptor, b"x" * 20)
    log.rotate()
    assert "started anew at 10 bytes; what it held is gone: Is a directory" in path.read_text()
    assert "xxx" not in path.read_text()
