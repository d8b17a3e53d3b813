"""Everything in one go under a time limit: python -m ddtree.bench --all --out FOLDER --limit-s 420.

Each stage is a process of its own with a limit of its own, so that a kernel that breaks the GPU's context, or hangs,
takes nothing else with it; each writes its file as it goes. What is worth most comes first.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddtree.bench.table import write

LEAST = 12.0  # seconds under which no stage is begun: Python and CUDA take most of them to start
SANITIZER = ("compute-sanitizer", "--error-exitcode", "9", "--print-limit", "20", "--tool")


@dataclass(frozen=True)
class Stage:
    """Arguments of ddtree.bench, the most seconds, and what the process runs under."""

    name: str
    arguments: tuple[str, ...]
    seconds: float
    tool: str = ""
    file: bool = True


def stages(folder: Path) -> Iterator[tuple[Stage, ...]]:
    """Groups of stages; those of a group run side by side. Made one by one, as later ones use the files of earlier."""
    sizes = ("--heads", "64", "128", "256")
    yield (
        Stage("checks", ("--only", "checks"), 110),
        Stage("warm", ("--warm", *sizes), 110, file=False),
    )
    yield (Stage("steps", ("--only", "steps"), 70),)
    limits = _given("--limits", folder / "steps.json", "launch_us")
    yield (Stage("dense", ("--only", "dense", *limits), 70),)
    yield (Stage("tune", ("--tune", *sizes, "--seconds", "60"), 85),)
    tuned = _given("--tuning", folder / "tune.json", "attention")
    yield (Stage("attention", ("--only", "attention", *limits, *tuned), 120),)
    yield (Stage("shapes", ("--only", "shapes", *limits, *tuned), 90),)
    for tool in ("memcheck", "racecheck"):
        yield (Stage(tool, ("--small",), 70, tool=tool, file=False),)


def _given(option: str, path: Path, field: str) -> tuple[str, ...]:
    """The option, if the stage that writes its file came so far."""
    return (option, str(path)) if path.is_file() and field in json.loads(path.read_text()) else ()


def run(folder: Path, limit_s: float) -> int:
    """Exit status 0 if every stage ended with 0. `session.json` tells of each; `session.log` holds what they said."""
    folder.mkdir(parents=True, exist_ok=True)
    started, results = time.monotonic(), []
    with (folder / "session.log").open("w") as log:
        for group in stages(folder):
            left = limit_s - (time.monotonic() - started)
            results += _group(group, folder, left, log)
            write(folder / "session.json", {"limit_s": limit_s, "stages": results})
    return int(any(result["status"] != "ended with 0" for result in results))


def _group(group: tuple[Stage, ...], folder: Path, left: float, log: Any) -> list[dict[str, Any]]:
    begun = time.monotonic()
    if left < LEAST:
        return [_result(stage, "no time left", 0.0, []) for stage in group]
    running = [(stage, _start(stage, folder, log)) for stage in group]
    results = []
    try:
        for stage, (command, process) in running:
            status = _wait(process, begun + min(stage.seconds, left) - time.monotonic()) if process else "not here"
            results.append(_result(stage, status, time.monotonic() - begun, command))
    finally:  # also when this process is interrupted
        for _, (_, process) in running:
            if process and process.poll() is None:
                _kill(process)
    return results


def _result(stage: Stage, status: str, seconds: float, command: list[str]) -> dict[str, Any]:
    print(f"== {stage.name}: {status} after {seconds:.0f} s", flush=True)  # noqa: T201
    shown = " ".join(["python", *command[command.index("-m") :]]) if "-m" in command else ""
    return {"name": stage.name, "tool": stage.tool, "command": shown, "status": status, "seconds": round(seconds, 1)}


def _start(stage: Stage, folder: Path, log: Any) -> tuple[list[str], subprocess.Popen[bytes] | None]:
    command = [sys.executable, "-m", "ddtree.bench", *stage.arguments]
    command += ["--out", str(folder / f"{stage.name}.json")] if stage.file else []
    environment = dict(os.environ)
    if stage.tool:
        tool = _sanitizer()
        if not tool:
            return command, None
        command = [tool, *SANITIZER[1:], stage.tool, *command]
        # Every tensor an allocation of its own, so that reads past its end are seen.
        environment |= {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"} if stage.tool == "memcheck" else {}
    log.write(f"== {stage.name}: {' '.join(command)}\n")
    log.flush()
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
    return command, process


def _sanitizer() -> str:
    found = shutil.which(SANITIZER[0]) or shutil.which(SANITIZER[0], path="/usr/local/cuda/bin")
    return found or ""


def _wait(process: subprocess.Popen[bytes], seconds: float) -> str:
    """How the process ended; past its time its whole group is killed."""
    try:
        return f"ended with {process.wait(max(0.0, seconds))}"
    except subprocess.TimeoutExpired:
        _kill(process)
        return "out of time"


def _kill(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
