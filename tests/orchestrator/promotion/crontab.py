"""A crontab of a test's own, and what cron would do with it when the machine starts."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

_PROGRAM = """\
#!/bin/sh
file={folder}/lines
case $1 in
-l) if [ -e $file ]; then cat $file; else echo "no crontab for test" >&2; exit 1; fi ;;
-) cat > $file.new && mv $file.new $file ;;
*) exit 2 ;;
esac
"""
_ENVIRONMENT = {"SHELL": "/bin/sh", "PATH": "/usr/bin:/bin", "LOGNAME": "root"}


@contextlib.contextmanager
def installed(folder: Path) -> Iterator[Path]:
    """`crontab` on PATH, which edits a file in the folder, and a process called cron; the machine's own stay as they
    are."""
    program = folder / "crontab"
    program.write_text(_PROGRAM.format(folder=folder))
    program.chmod(0o755)
    shutil.copy(shutil.which("sleep") or "/bin/sleep", folder / "cron")
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}:{before}"
    with subprocess.Popen([str(folder / "cron"), "infinity"]) as daemon:
        try:
            yield folder
        finally:
            os.environ["PATH"] = before
            daemon.kill()


def lines(folder: Path) -> list[str]:
    file = folder / "lines"
    return file.read_text().splitlines() if file.exists() else []


def reboot(folder: Path, only: str) -> int:
    """Run the @reboot lines that hold the text, as cron does: by sh, in cron's environment. Returns how many."""
    commands = [line.removeprefix("@reboot ").replace("\\%", "%") for line in lines(folder) if only in line]
    for command in commands:
        environment = _ENVIRONMENT | {"HOME": str(Path.home())}
        subprocess.run(["/bin/sh", "-c", command], env=environment, cwd="/", check=True, timeout=60)
    return len(commands)
