"""A run's folder: written once, read by everything else.

A trial's files go to a hidden folder first and are renamed into place, so that a trial is either whole or absent; the
journal is appended to and synced, so that a killed sweep loses at most the trials in flight.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import yaml
from pydantic import ValidationError

from engines.base import SpecCounters, StageTimes
from orchestrator.errors import InputError
from orchestrator.records import Decision, JournalEntry, Record, TrialRecord, TrialState

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
        """Make the folder with sweep.yaml and environment.json. An existing run keeps its sweep and gets the new
        environment only if it had none."""
        self.trials_folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / "sweep.yaml").exists():
            write_text(self.folder / "sweep.yaml", yaml.safe_dump(sweep, sort_keys=False, allow_unicode=True))
        if not (self.folder / "environment.json").exists():
            write_text(self.folder / "environment.json", json.dumps(environment, indent=2))

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run against a second sweep. InputError when another process has it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError(f"{self.folder}: another sweep is writing this run") from error
            yield

    def journal(self, entry: JournalEntry) -> None:
        """Append one entry and sync it to the disk. A half line that a killed writer left is closed first."""
        path = self.folder / "journal.jsonl"
        with path.open("ab+") as handle:
            if handle.tell() and not _ends_with_newline(path):
                handle.write(b"\n")
            handle.write(entry.model_dump_json().encode() + b"\n")
            handle.flush()
            os.fsync(handle.fileno())

    def entries(self) -> list[JournalEntry]:
        """The journal so far. A line cut off by a kill is left out: what it said never took effect."""
        path = self.folder / "journal.jsonl"
        if not path.exists():
            return []
        entries = []
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValidationError):
                entries.append(JournalEntry.model_validate_json(line))
        return entries

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

    def requests(self) -> pd.DataFrame:
        """All valid trials' requests with the columns trial, arm, concurrency and block in front."""
        frames = []
        for record in self.trials():
            if record.state is not TrialState.VALID:
                continue
            frame = pd.read_parquet(self.trials_folder / record.digest / "requests.parquet")
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

    def environment(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "environment.json").read_text(encoding="utf-8")))

    def sweep(self) -> dict[str, Any]:
        return dict(yaml.safe_load((self.folder / "sweep.yaml").read_text(encoding="utf-8")))

    def write_decision(self, decision: Decision) -> None:
        write_text(self.folder / "decision.json", decision.model_dump_json(indent=2))

    def decision(self) -> Decision | None:
        path = self.folder / "decision.json"
        return read_record(path, Decision) if path.exists() else None


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
