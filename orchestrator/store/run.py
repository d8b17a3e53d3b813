"""A run's folder and the files at its top."""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import yaml
from pydantic import BaseModel

from orchestrator.errors import InputError
from orchestrator.outputs import Outputs
from orchestrator.records import Decision, Divergence, JournalEntry, Look, Probe, TrialState
from orchestrator.store.files import first_fault, read_record, write_frame, write_text, writing
from orchestrator.store.lines import append, read_lines
from orchestrator.store.trials import Trials

M = TypeVar("M", bound=BaseModel)


class RunStore:
    """runs/<file>-<plan digest>/, or a search's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trials = Trials(folder / "trials")

    def create(self, sweep: dict[str, Any], environment: dict[str, Any]) -> None:
        """Make the folder with sweep.yaml and environment.json.

        A run that goes on takes the new sweep.yaml: its trials are the same, by their digests, and what else changed is
        how they are decided. It keeps its environment; InputError where that is other hardware than this.
        """
        with writing(self.folder):
            self.trials.folder.mkdir(parents=True, exist_ok=True)
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

    def sweep(self, model: type[M]) -> M:
        """What was asked, as this model. InputError when sweep.yaml is damaged."""
        path = self.folder / "sweep.yaml"
        try:
            return model.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise InputError(f"{path}: damaged record: {first_fault(error)}") from error

    def environment(self) -> dict[str, Any]:
        path = self.folder / "environment.json"
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{path}: damaged record: {error}") from error

    def journal(self, entry: JournalEntry) -> None:
        """Append that a trial changed state."""
        append(self.folder / "journal.jsonl", entry)

    def entries(self) -> list[JournalEntry]:
        """The journal so far."""
        return read_lines(self.folder / "journal.jsonl", JournalEntry)

    def finished(self) -> set[str]:
        """Digests of the trials recorded as valid whose files are there."""
        last = {entry.trial: entry.state for entry in self.entries()}
        valid = {digest for digest, state in last.items() if state is TrialState.VALID}
        return {digest for digest in valid if self.trials.hold(digest)}

    def look(self, look: Look) -> None:
        """Append what was concluded between two rounds."""
        append(self.folder / "looks.jsonl", look)

    def looks(self) -> list[Look]:
        """The looks so far."""
        return read_lines(self.folder / "looks.jsonl", Look)

    def probe(self, probe: Probe) -> None:
        """Append what a search found at one place."""
        append(self.folder / "probes.jsonl", probe)

    def probes(self) -> list[Probe]:
        """A search's probes so far."""
        return read_lines(self.folder / "probes.jsonl", Probe)

    def keep_probes(self, probes: Sequence[Probe]) -> None:
        """Write down a whole search's probes, in place of those there were."""
        if probes:
            with writing(self.folder):
                write_text(self.folder / "probes.jsonl", "".join(f"{item.model_dump_json()}\n" for item in probes))

    def write_divergences(self, divergences: Sequence[Divergence]) -> None:
        """equivalence.parquet: a row a text that departs from plain decoding's."""
        rows = [item.model_dump() for item in divergences]
        with writing(self.folder):
            write_frame(self.folder / "equivalence.parquet", pd.DataFrame(rows, columns=list(Divergence.model_fields)))

    def write_outputs(self, outputs: Outputs) -> None:
        with writing(self.folder):
            write_text(self.folder / "outputs.json", outputs.model_dump_json(indent=1))

    def outputs(self) -> Outputs | None:
        """None for a run that is not decided, or was before there were any."""
        path = self.folder / "outputs.json"
        return read_record(path, Outputs) if path.exists() else None

    def write_decision(self, decision: Decision) -> None:
        with writing(self.folder):
            write_text(self.folder / "decision.json", decision.model_dump_json(indent=2))

    def decision(self) -> Decision | None:
        path = self.folder / "decision.json"
        return read_record(path, Decision) if path.exists() else None


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


def _hardware(environment: dict[str, Any]) -> str:
    """What trials of one run must share, as text."""
    cards = [card["name"] for card in environment.get("gpus", [])]
    return ", ".join([str(environment.get("cpu", "an unknown CPU")), *cards])
