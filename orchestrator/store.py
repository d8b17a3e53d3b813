"""A run's folder: written once, read by everything else.

A trial's files go to a hidden folder first and are renamed into place, so that a trial is either whole or absent; the
journal is appended to and synced, so that a killed sweep loses at most the trials in flight.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import pyarrow as pa
import yaml
from pydantic import ValidationError

from engines.base import SpecCounters, StageTimes
from engines.messages import one_line
from orchestrator.errors import InputError
from orchestrator.outputs import Outputs
from orchestrator.records import Decision, DraftTrees, JournalEntry, Look, Record, TrialRecord, TrialState
from orchestrator.search import Probe

R = TypeVar("R", bound=Record)


def now() -> str:
    """UTC time for records, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class RunStore:
    """runs/<name>-<digest>/ as design.md lays it out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def trials_folder(self) -> Path:
        return self.folder / "trials"

    def create(self, sweep: dict[str, Any], environment: dict[str, Any]) -> None:
        """Make the folder with sweep.yaml and environment.json.

        A run that goes on takes the new sweep.yaml: its trials are the same, by their digests, and what else changed is
        how they are decided. It keeps its environment; InputError where that is other hardware than this.
        """
        with writing(self.folder):
            self.trials_folder.mkdir(parents=True, exist_ok=True)
            if (self.folder / "environment.json").exists():
                self._check_hardware(environment)
            else:
                write_text(self.folder / "environment.json", json.dumps(environment, indent=2))
            write_text(self.folder / "sweep.yaml", yaml.safe_dump(sweep, sort_keys=False, allow_unicode=True))

    def _check_hardware(self, environment: dict[str, Any]) -> None:
        before, now_here = _hardware(self.environment()), _hardware(environment)
        if before != now_here:
            raise InputError(f"{self.folder}: measured on {before}, this is {now_here}; --fresh measures again here")

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run against a second sweep. InputError when another process has it."""
        with contextlib.ExitStack() as held:
            with writing(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
                handle = held.enter_context((self.folder / ".lock").open("w"))
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise InputError(f"{self.folder}: another sweep is writing this run") from error
            yield

    def journal(self, entry: JournalEntry) -> None:
        """Append one entry and sync it to the disk. A half line that a killed writer left is closed first."""
        _append(self.folder / "journal.jsonl", entry)

    def look(self, look: Look) -> None:
        """Append what was concluded between two rounds, as `journal` does."""
        _append(self.folder / "looks.jsonl", look)

    def entries(self) -> list[JournalEntry]:
        """The journal so far. A line cut off by a kill is left out: what it said never took effect.

        InputError for a whole line that says something else, such as another version's.
        """
        return _lines(self.folder / "journal.jsonl", JournalEntry)

    def looks(self) -> list[Look]:
        """The looks so far, read as the journal is."""
        return _lines(self.folder / "looks.jsonl", Look)

    def probe(self, probe: Probe) -> None:
        """Append what a search found at one place, as `journal` does."""
        _append(self.folder / "probes.jsonl", probe)

    def keep_probes(self, probes: Sequence[Probe]) -> None:
        """Write down a whole search's probes, in place of those there were."""
        if probes:
            with writing(self.folder):
                write_text(self.folder / "probes.jsonl", "".join(f"{item.model_dump_json()}\n" for item in probes))

    def probes(self) -> list[Probe]:
        """A search's probes so far, read as the journal is."""
        return _lines(self.folder / "probes.jsonl", Probe)

    def finished(self) -> set[str]:
        """Digests of the trials recorded as valid whose files are there."""
        last = {entry.trial: entry.state for entry in self.entries()}
        valid = {digest for digest, state in last.items() if state is TrialState.VALID}
        return {digest for digest in valid if (self.trials_folder / digest / "trial.json").exists()}

    def write_trial(
        self,
        record: TrialRecord,
        requests: pd.DataFrame,
        telemetry: pd.DataFrame,
        counters: SpecCounters,
        stages: StageTimes | None,
        engine_log: bytes,
        trees: DraftTrees | None = None,
    ) -> None:
        """Store one measured trial, whole or not at all. A trial measured before is replaced."""
        staging = self.trials_folder / f".{record.digest}"
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        try:
            requests.to_parquet(staging / "requests.parquet", index=False)
            telemetry.to_parquet(staging / "telemetry.parquet", index=False)
            steps = {"counters": asdict(counters), "stages": asdict(stages) if stages else None}
            write_text(staging / "steps.json", json.dumps(steps))
            if trees is not None:
                write_text(staging / "trees.json", trees.model_dump_json())
            (staging / "engine.log").write_bytes(engine_log)
            write_text(staging / "trial.json", record.model_dump_json(indent=2))
            target = self.trials_folder / record.digest
            shutil.rmtree(target, ignore_errors=True)
            staging.rename(target)
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def trials(self) -> list[TrialRecord]:
        """Records of all stored trials, sorted by block, concurrency and arm."""
        paths = sorted(self.trials_folder.glob("[!.]*/trial.json"))
        records = [read_record(path, TrialRecord) for path in paths]
        return sorted(records, key=lambda r: (r.block, r.concurrency, r.arm))

    def trial(self, digest: str) -> TrialRecord | None:
        """One trial's record; None where it is not stored."""
        path = self.trials_folder / digest / "trial.json"
        return read_record(path, TrialRecord) if path.exists() else None

    def trial_requests(self, digest: str) -> pd.DataFrame:
        """One trial's requests. InputError naming the file when it is damaged."""
        return _read_frame(self.trials_folder / digest / "requests.parquet")

    def requests(self) -> pd.DataFrame:
        """All valid trials' requests with the columns trial, arm, concurrency and block in front.

        InputError naming the file when one is damaged.
        """
        frames = []
        for record in self.trials():
            if record.state is not TrialState.VALID:
                continue
            frame = self.trial_requests(record.digest)
            keys: dict[str, Any] = {
                "trial": record.digest,
                "arm": record.arm,
                "concurrency": record.concurrency,
                "block": record.block,
            }
            frames.append(frame.assign(**keys)[[*keys, *frame.columns]])
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    def telemetry(self, digest: str) -> pd.DataFrame:
        return pd.read_parquet(self.trials_folder / digest / "telemetry.parquet")

    def trees(self, digest: str) -> DraftTrees | None:
        """A trial's recorded draft trees; None where there are none. InputError where they are damaged."""
        path = self.trials_folder / digest / "trees.json"
        return read_record(path, DraftTrees) if path.exists() else None

    def environment(self) -> dict[str, Any]:
        path = self.folder / "environment.json"
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{path}: damaged record: {error}") from error

    def sweep(self) -> dict[str, Any]:
        return dict(yaml.safe_load((self.folder / "sweep.yaml").read_text(encoding="utf-8")))

    def write_decision(self, decision: Decision) -> None:
        with writing(self.folder):
            write_text(self.folder / "decision.json", decision.model_dump_json(indent=2))

    def write_outputs(self, outputs: Outputs) -> None:
        with writing(self.folder):
            write_text(self.folder / "outputs.json", outputs.model_dump_json(indent=1))

    def outputs(self) -> Outputs | None:
        """None for a run that is not decided, or was before there were any."""
        path = self.folder / "outputs.json"
        return read_record(path, Outputs) if path.exists() else None

    def decision(self) -> Decision | None:
        path = self.folder / "decision.json"
        return read_record(path, Decision) if path.exists() else None


def _append(path: Path, record: Record) -> None:
    with path.open("ab+") as handle:
        if handle.tell() and not _ends_with_newline(path):
            handle.write(b"\n")
        handle.write(record.model_dump_json().encode() + b"\n")
        handle.flush()
        os.fsync(handle.fileno())


def _lines(path: Path, model: type[R]) -> list[R]:
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [_line(path, number, line, model) for number, line in enumerate(lines, 1) if is_json(line)]


def _line(path: Path, number: int, line: str, model: type[R]) -> R:
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise InputError(f"{path}:{number}: {where}: {problem['msg']}") from error


def is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _hardware(environment: dict[str, Any]) -> str:
    """What trials of one run must share, as text."""
    cards = [card["name"] for card in environment.get("gpus", [])]
    return ", ".join([str(environment.get("cpu", "an unknown CPU")), *cards])


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as handle:
        handle.seek(-1, os.SEEK_END)
        return handle.read(1) == b"\n"


def read_record(path: Path, model: type[R]) -> R:
    """A stored JSON record; InputError naming the file when it is damaged."""
    try:
        return model.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: damaged record: {str(error).splitlines()[0]}") from error


def _read_frame(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        remedy = "delete the trial's folder, then --resume measures it again"
        raise InputError(f"{path}: damaged: {one_line(str(error))}; {remedy}") from error


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """InputError, naming the run's folder, where a file in it cannot be written."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or one_line(str(error))
        remedy = "; make room, then --resume goes on" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise InputError(f"{folder}: cannot be written: {reason}{remedy}") from error


def write_text(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old content or the new, never a part."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def find_run(runs: Path, name: str | None) -> RunStore:
    """The run called `name` (a folder, a folder's name or an unambiguous beginning of it), or the newest one."""
    if name and (Path(name) / "sweep.yaml").exists():
        return RunStore(Path(name))
    folders = sorted(runs.glob("*/sweep.yaml"), key=lambda path: path.stat().st_mtime)
    matching = [path.parent for path in folders if name is None or path.parent.name.startswith(name)]
    if not matching:
        raise InputError(f"no run {name or ''} under {runs}; `orchestrate sweep FILE` makes one".replace("  ", " "))
    if name is not None and len(matching) > 1 and name not in {folder.name for folder in matching}:
        raise InputError(f"{name!r} is the beginning of several runs: {', '.join(f.name for f in matching)}")
    exact = [folder for folder in matching if folder.name == name]
    return RunStore(exact[0] if exact else matching[-1])
