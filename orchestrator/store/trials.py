"""The trials of a run, a folder each.

A trial's files go to a hidden folder first and are renamed into place, so that a trial is either whole or absent.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from engines.base import SpecCounters, StageTimes
from orchestrator.records import DraftTrees, TrialRecord, TrialState
from orchestrator.store.files import MEASURE_AGAIN, read_frame, read_record, write_text


class Trials:
    """trials/, in it a folder for each trial, named by its digest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(
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
        staging = self.folder / f".{record.digest}"
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
            target = self.folder / record.digest
            shutil.rmtree(target, ignore_errors=True)
            staging.rename(target)
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def hold(self, digest: str) -> bool:
        """Whether a trial is stored."""
        return (self.folder / digest / "trial.json").exists()

    def records(self) -> list[TrialRecord]:
        """Records of all stored trials, sorted by block, concurrency and arm."""
        paths = sorted(self.folder.glob("[!.]*/trial.json"))
        records = [read_record(path, TrialRecord, MEASURE_AGAIN) for path in paths]
        return sorted(records, key=lambda r: (r.block, r.concurrency, r.arm))

    def record(self, digest: str) -> TrialRecord | None:
        """One trial's record; None where it is not stored."""
        path = self.folder / digest / "trial.json"
        return read_record(path, TrialRecord, MEASURE_AGAIN) if self.hold(digest) else None

    def requests(self) -> pd.DataFrame:
        """All valid trials' requests with the columns trial, arm, concurrency and block in front.

        InputError naming the file when one is damaged.
        """
        frames = []
        for record in self.records():
            if record.state is not TrialState.VALID:
                continue
            frame = self.requests_of(record.digest)
            keys: dict[str, Any] = {
                "trial": record.digest,
                "arm": record.arm,
                "concurrency": record.concurrency,
                "block": record.block,
            }
            frames.append(frame.assign(**keys)[[*keys, *frame.columns]])
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    def requests_of(self, digest: str) -> pd.DataFrame:
        """One trial's requests. InputError naming the file when it is damaged."""
        return read_frame(self.folder / digest / "requests.parquet")

    def telemetry(self, digest: str) -> pd.DataFrame:
        return pd.read_parquet(self.folder / digest / "telemetry.parquet")

    def trees(self, digest: str) -> DraftTrees | None:
        """A trial's recorded draft trees; None where there are none. InputError where they are damaged."""
        path = self.folder / digest / "trees.json"
        return read_record(path, DraftTrees) if path.exists() else None
