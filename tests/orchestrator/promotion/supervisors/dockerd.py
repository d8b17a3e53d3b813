"""A docker daemon of a test's own, and an image made of this machine's programs: nothing is fetched."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.orchestrator.processes import eventually

DOCKERD = shutil.which("dockerd", path="/usr/sbin:/usr/bin:/usr/local/bin:/usr/local/sbin")
PYTHON = Path("/usr/bin/python3")

needs_dockerd = pytest.mark.skipif(
    DOCKERD is None or os.geteuid() != 0 or not PYTHON.exists(),
    reason="needs root, Debian's python3 and dockerd (apt: docker.io)",
)


@dataclass
class Dockerd:
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        return f"unix://{self.folder}/sock"

    def docker(self, *words: str) -> str:
        command = ["docker", "--host", self.address, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        for left in (self.folder / "x/netns").glob("*"):  # mounts that it forgets
            subprocess.run(["umount", str(left)], check=False, capture_output=True)


def start(folder: Path) -> Dockerd:
    assert DOCKERD is not None
    options = ["--host", f"unix://{folder}/sock", "--data-root", str(folder / "data"), "--exec-root", str(folder / "x")]
    quiet = ["--pidfile", str(folder / "pid"), "--bridge", "none", "--iptables=false", "--storage-driver", "vfs"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([DOCKERD, *options, *quiet], stdout=log, stderr=log)
    running = Dockerd(folder, process)
    assert eventually(lambda: _answers(running), 60), (folder / "log").read_text()[-2000:]
    return running


def _answers(running: Dockerd) -> bool:
    command = ["docker", "--host", running.address, "info"]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


def make_image(running: Dockerd) -> str:
    """Debian's python3, sh and a few tools with their libraries, as an image; its id."""
    archive = running.folder / "image.tar"
    programs = [Path(shutil.which(name) or name) for name in ("sh", "sleep", "id", "touch", "cat", "ls")]
    with tarfile.open(archive, "w") as tar:
        files = {*programs, PYTHON, *_libraries([*programs, PYTHON])}
        for folder in sorted({parent for path in {*files, _standard_library()} for parent in path.parents}):
            _add_folder(tar, folder)
        _add_folder(tar, Path("/tmp"), 0o1777)
        for path in sorted(files):
            tar.add(path.resolve(), arcname=str(path).lstrip("/"))
        _add_standard_library(tar)
    return running.docker("import", str(archive), "server:test").strip()


def _libraries(programs: list[Path]) -> set[Path]:
    done = subprocess.run(["ldd", *map(str, programs)], check=True, capture_output=True, text=True)
    words = [word for line in done.stdout.splitlines() for word in line.split()]
    return {Path(word) for word in words if word.startswith("/") and not word.endswith(":")}


def _standard_library() -> Path:
    query = "import sysconfig; print(sysconfig.get_path('stdlib'))"
    command = [str(PYTHON), "-IS", "-c", query]
    return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


def _add_folder(tar: tarfile.TarFile, folder: Path, mode: int = 0o755) -> None:
    """As the archive does not imply it: with a mode that lets everyone in."""
    info = tarfile.TarInfo(str(folder).lstrip("/") or ".")
    info.type, info.mode = tarfile.DIRTYPE, mode
    tar.addfile(info)


def _add_standard_library(tar: tarfile.TarFile) -> None:
    unneeded = ("test", "idlelib", "tkinter", "lib2to3", "ensurepip", "__pycache__", "config-")

    def keep(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if Path(info.name).name.startswith(unneeded) else info

    folder = _standard_library()
    tar.add(folder, arcname=str(folder).lstrip("/"), filter=keep)
