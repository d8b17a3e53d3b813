"""Coming back after a reboot: a line of the user's crontab for each unit, where there is cron."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from .files import Folder, unfinished

INHERITED = ("HOME", "LANG", "PATH")
"""What a server has of the environment of who started it; cron's own is another one."""

_CRONS = {"cron", "crond", "fcron"}
_NO_CRONTAB = "no crontab for"
_LONGEST = 900
"""Characters: cron refuses a command of 1000."""
_ASK_S = 30.0

Lines = list[str]


def enable(folder: Folder) -> None:
    """Have cron start the unit at each reboot. Where that cannot be, `lost` says why; it is no error."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    _remember(folder, inherited)
    line = _line(folder)
    _edit(lambda lines: [*_others(lines, folder), line])


def disable(folder: Folder) -> None:
    _edit(lambda lines: _others(lines, folder))


def restore(folder: Folder) -> None:
    """Take the environment of the first start. ValueError where there was none."""
    try:
        os.environ.update(json.loads(_inherited(folder).read_bytes()))
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder.path}: it was never started: {error}") from error


def lost(folder: Folder) -> str:
    """Why the unit does not come back after a reboot; empty where it does."""
    lines, reason = _read()
    if reason:
        return reason
    if not any(line.endswith(_mark(folder)) for line in lines):
        return "the crontab has no line for it"
    return "" if any(name in _CRONS for name in _programs()) else "no cron daemon runs"


def _line(folder: Folder) -> str:
    command = shlex.join([sys.executable, "-IS", str(folder.path / "keeper.pyz"), "boot", str(folder.path)])
    return f"@reboot {command.replace('%', chr(92) + '%')} {_mark(folder)}"


def _mark(folder: Folder) -> str:
    return f"# orchestrate {folder.path}"


def _others(lines: Lines, folder: Folder) -> Lines:
    return [line for line in lines if not line.endswith(_mark(folder))]


def _edit(change: Callable[[Lines], Lines]) -> None:
    """Change the crontab, which is the user's: one that cannot be read stays as it is. No unit fails by it: `lost`
    tells."""
    with contextlib.suppress(OSError, subprocess.SubprocessError), _one_at_a_time():
        lines, reason = _read()
        wanted = change(lines)
        if not reason and wanted != lines and all(len(line) <= _LONGEST for line in wanted if line not in lines):
            _crontab("-", "".join(f"{line}\n" for line in wanted))


def _read() -> tuple[Lines, str]:
    """The crontab's lines, and why it cannot be read."""
    try:
        done = _crontab("-l")
    except FileNotFoundError:
        return [], "there is no cron"
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"crontab cannot be asked: {error}"
    if done.returncode == 0:
        return done.stdout.splitlines(), ""
    said = done.stderr.strip().splitlines()
    return [], "" if _NO_CRONTAB in done.stderr else f"crontab says: {said[-1] if said else done.returncode}"


def _crontab(argument: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["crontab", argument], input=text, capture_output=True, text=True, timeout=_ASK_S, check=False
    )


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Two units of one user at the same moment would lose one of their lines."""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home raises for a user that has none
    descriptor = os.open(home if home.is_dir() else Path("/"), os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _programs() -> Iterator[str]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                yield (entry / "comm").read_text(encoding="utf-8", errors="replace").strip()


def _remember(folder: Folder, inherited: dict[str, str]) -> None:
    """On the disk before this returns: a power cut may be what it is needed after."""
    path = _inherited(folder)
    temporary = unfinished(path)
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(inherited, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _inherited(folder: Folder) -> Path:
    return folder.path / "inherited.json"
