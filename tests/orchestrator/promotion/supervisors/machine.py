"""A machine whose first process is a real systemd: namespaces of its own over a throw-away copy of this one's files.

Its root is an overlay, so whatever happens in there is gone with it: Debian's own start-up empties /tmp, for example.
Only the network is this machine's, and the folders that a test binds. None of this machine's services starts in there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.orchestrator.processes import eventually

INIT = Path("/lib/systemd/systemd")

_MASKED = (
    "tmpfiles-setup tmpfiles-setup-dev tmpfiles-clean udevd update-utmp machine-id-commit random-seed sysctl firstboot"
)
_FILES = """
set -eu
top=$1; shift
mount --make-rprivate /
mount -t tmpfs tmpfs "$top"
mkdir "$top/upper" "$top/work" "$top/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$top/upper,workdir=$top/work" "$top/root"
cd "$top/root"
rm -rf etc/systemd/system/*.wants
for name in MASKED; do ln -sf /dev/null "etc/systemd/system/systemd-$name.service"; done
ln -sf /dev/null etc/systemd/system/timers.target
for pair; do
    mkdir -p "./srv/${pair%%=*}"
    mount --rbind "${pair#*=}" "./srv/${pair%%=*}"
done
echo made
exec sleep infinity
""".replace("MASKED", _MASKED)
_BOOT = """
set -eu
cd "$1"
[ "$(stat -f -c %T .)" = overlayfs ]
mount --make-rprivate /
mount --rbind . .
cd "$1"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t tmpfs tmpfs sys/fs/cgroup
mkdir sys/fs/cgroup/systemd
mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
mount -t tmpfs tmpfs dev
for name in null zero full random urandom tty; do touch dev/$name; mount --bind /dev/$name dev/$name; done
mkdir dev/shm dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for folder in run tmp var/tmp dev/shm; do mount -t tmpfs -o mode=1777 tmpfs $folder; done
mkdir -p old-root
pivot_root . old-root
umount -l old-root
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=test \
    /lib/systemd/systemd --system --unit=multi-user.target --log-target=journal --show-status=no
"""
_ALL = ("--mount", "--pid", "--uts", "--ipc", "--cgroup")


def unavailable() -> str:
    """Why no such machine can be had here; empty where it can."""
    if os.geteuid() != 0 or not INIT.exists() or shutil.which("unshare") is None:
        return "needs root and systemd (apt: systemd)"
    if Path("/proc/1/comm").read_text().strip() == "systemd":
        return "this machine's own systemd would share its control groups"
    done = subprocess.run(["unshare", *_ALL, "--fork", "true"], capture_output=True, check=False)
    return f"no namespaces here: {done.stderr.decode().strip()}" if done.returncode else ""


@dataclass
class Machine:
    """`bound`: name to folder of this machine, which the machine has as /srv/NAME."""

    folder: Path
    bound: Mapping[str, Path]
    _files: subprocess.Popen[str] = field(init=False)
    _init: subprocess.Popen[bytes] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        pairs = [f"{name}={path}" for name, path in self.bound.items()]
        command = ["unshare", "--mount", "sh", "-c", _FILES, "sh", str(self.folder), *pairs]
        self._files = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self._files.stdout is not None
        assert self._files.stderr is not None
        if self._files.stdout.readline() != "made\n":
            pytest.skip(f"no machine can be made here: {self._files.stderr.read().strip()}")

    def boot(self) -> None:
        """Switch it on and wait until its services were started."""
        inside = ["nsenter", "--target", str(self._files.pid), "--mount"]
        alone = ["unshare", *_ALL, "--fork", "--kill-child", "sh", "-c", _BOOT, "sh", str(self.folder / "root")]
        self._init = subprocess.Popen([*inside, *alone], stdin=subprocess.DEVNULL)
        if not eventually(
            lambda: self.run("systemctl", "is-system-running").stdout.strip() in ("running", "degraded"), 60
        ):
            self.off()
            pytest.skip("systemd does not come up in namespaces here")

    def run(self, *argv: str, variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """A command in there, as root."""
        settings = [f"{name}={value}" for name, value in (variables or {}).items()]
        command = ["nsenter", "--target", str(self.pid), *_ALL, "--root", "--wd", "env", *settings, *argv]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)

    @property
    def pid(self) -> int:
        """Of its first process, as we see it."""
        assert self._init is not None
        for parent in (self._init.pid, *_children(self._init.pid)):
            for child in _children(parent):
                if (Path(f"/proc/{child}/comm").read_text().strip()) == "systemd":
                    return child
        return -1

    def off(self) -> None:
        """Cut its power."""
        if self._init is not None:
            self._init.kill()
            self._init.wait()
            self._init = None

    def close(self) -> None:
        self.off()
        self._files.kill()
        self._files.wait()


def _children(pid: int) -> Sequence[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []
