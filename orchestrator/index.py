"""A run's trials in a few small frames, so that a page of figures opens without reading every request again.

index/ lies beside decision.json and holds nothing that the trials do not: it can be deleted at any time. It is written
when it is first asked for and again when the run has changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.damage import DAMAGE, Reading
from orchestrator.metrics import measure, window_of
from orchestrator.records import REQUEST_COLUMNS, TrialRecord, TrialState
from orchestrator.store import RunStore

_FORMAT = 1
_WATCHED = ("sweep.yaml", "journal.jsonl", "decision.json", "equivalence.parquet", "outputs.json", "trials")
KEYS = ("trial", "arm", "concurrency", "block")
"""What each row of the requests belongs to."""

_UNREAD = {"token_ids", "prompt_token_ids", "chunk_times", "chunk_tokens", "coalesced"}
_READ = {column: kind for column, kind in REQUEST_COLUMNS.items() if column not in _UNREAD}
_FRAMES = ("requests", "telemetry", "goodput", "depths")
_SAMPLES = 2_000
"""Telemetry samples kept of a run, over all its trials."""

_LOWEST = ("available_bytes", "gpu_sm_clock_mhz")
"""Gauges of which a low value is the bad one; of the others a high one is."""

LIMITS = ("ttft", "tpot", "e2e")
_LIMIT_POINTS = 80


@dataclass(frozen=True)
class Index:
    """What a run's figures need of its trials.

    `requests` as Trials.requests, without any lists and with the texts of divergent prompts only.
    `telemetry`: trial and the columns of telemetry.parquet, thinned to the worst sample of each stretch.
    `goodput`: arm, concurrency, limit (ttft, tpot, e2e), ms, rps: requests a second that finished in the steady windows
    within that one limit. `depths`: arm, concurrency, task, depth, share: of verify steps that accept at least `depth`
    draft tokens. `problems`: a line for each trial that could not be read.
    """

    trials: list[TrialRecord]
    requests: pd.DataFrame
    telemetry: pd.DataFrame
    goodput: pd.DataFrame
    depths: pd.DataFrame
    problems: list[str]


def open_index(store: RunStore) -> Index:
    """The index that is stored and still true, or a new one, stored where the folder can be written."""
    stamp = stamp_of(store)
    with contextlib.suppress(*DAMAGE):
        found = _read(store.folder / "index")
        if found[0] == stamp:
            return found[1]
    index = build_index(store)
    with contextlib.suppress(OSError):
        write_index(store, index, stamp)
    return index


def stamp_of(store: RunStore) -> str:
    """Changes whenever a trial is stored or the run is decided."""
    marks = []
    for name in _WATCHED:
        path = store.folder / name
        marks.append(f"{path.stat().st_mtime_ns}:{path.stat().st_size}" if path.exists() else "-")
    return f"{_FORMAT}/" + " ".join(marks)


def build_index(store: RunStore) -> Index:
    """An index of the run as it is now. A trial that cannot be read is left out and named."""
    reading = Reading()
    trials, requests, telemetry = [], [], []
    for record in _records(store, reading):
        trials.append(record)
        folder = store.trials.folder / record.digest
        keys: dict[str, Any] = {name: getattr(record, "digest" if name == "trial" else name) for name in KEYS}
        with reading.noting(f"trial {record.digest[:12]}, requests.parquet"):
            if record.state is TrialState.VALID:
                frame = pd.read_parquet(folder / "requests.parquet", columns=list(_READ)).astype(_READ)
                requests.append(frame.assign(**keys)[[*KEYS, *frame.columns]])
        with reading.noting(f"trial {record.digest[:12]}, telemetry.parquet"):
            gauges = pd.read_parquet(folder / "telemetry.parquet").astype("float64")
            telemetry.append(gauges.assign(trial=record.digest))
    everything = pd.concat(requests, ignore_index=True) if requests else pd.DataFrame()
    return Index(
        trials=sorted(trials, key=lambda r: (r.block, r.concurrency, r.arm)),
        requests=_slim(everything, _divergent(store)),
        telemetry=_thin(telemetry),
        goodput=goodput_curves(everything, trials),
        depths=depth_shares(everything),
        problems=reading.problems,
    )


def write_index(store: RunStore, index: Index, stamp: str) -> None:
    """Store an index: a reader sees the old one or the new one."""
    staging = store.folder / f".index.{os.getpid()}"
    target = store.folder / "index"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    try:
        for name in _FRAMES:
            getattr(index, name).to_parquet(staging / f"{name}.parquet", index=False)
        trials = [record.model_dump(mode="json") for record in index.trials]
        document = {"stamp": stamp, "problems": index.problems, "trials": trials}
        (staging / "index.json").write_text(json.dumps(document), encoding="utf-8")
        target.mkdir(exist_ok=True)
        # The stamp goes last: frames under an old stamp are built again, never mixed up.
        (target / "index.json").unlink(missing_ok=True)
        for path in sorted(staging.iterdir(), key=lambda path: path.name == "index.json"):
            path.replace(target / path.name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def goodput_curves(requests: pd.DataFrame, trials: Sequence[TrialRecord] = ()) -> pd.DataFrame:
    """Goodput against one limit at a time, every arm of a concurrency on the same limits. Counts as
    ArmSummary.goodput_rps does: a failure is a miss, a request of one chunk has no TPOT to miss."""
    columns = ["arm", "concurrency", "limit", "ms", "rps"]
    rows: list[tuple[str, int, str, float, float]] = []
    measured = measure(requests) if len(requests) else requests
    records = {record.digest: record for record in trials}
    for at, point in measured.groupby("concurrency") if len(measured) else ():
        finished = {str(arm): _in_window(own, int(str(at)), records) for arm, own in point.groupby("arm")}
        for limit in LIMITS:
            values = 1e3 * point[limit].dropna().to_numpy(dtype=float)
            if not len(values):
                continue
            grid = np.linspace(0.0, 1.02 * float(values.max()), _LIMIT_POINTS)
            for arm, (done, seconds) in finished.items():
                met = np.sort(1e3 * done[limit].fillna(0.0).to_numpy(dtype=float))
                counts = np.searchsorted(met, grid, side="right")
                rows += [(arm, int(str(at)), limit, float(ms), n / seconds) for ms, n in zip(grid, counts, strict=True)]
    return pd.DataFrame(rows, columns=columns)


def depth_shares(requests: pd.DataFrame) -> pd.DataFrame:
    """P(a verify step accepts at least k draft tokens) for each kind of prompt, pooled over requests."""
    columns = ["arm", "concurrency", "task", "depth", "share"]
    rows: list[tuple[object, ...]] = []
    done = requests[requests["error"] == ""] if len(requests) else requests
    for (arm, at, task), group in done.groupby(["arm", "concurrency", "task"]) if len(done) else ():
        steps, counts = int(group["verify_steps"].sum()), _column_sums(group["accepted_by_depth"])
        if steps and counts.any():
            rows += [(arm, at, task, depth, float(n / steps)) for depth, n in enumerate(counts, start=1)]
    return pd.DataFrame(rows, columns=columns)


def _records(store: RunStore, reading: Reading) -> list[TrialRecord]:
    """Trials that lie where they say they do, inside the run's folder."""
    records = []
    for path in sorted(store.trials.folder.glob("[!.]*/trial.json")):
        what = f"trial {path.parent.name[:12]}, trial.json"
        with reading.noting(what):
            record = TrialRecord.model_validate_json(path.read_bytes())
            if record.digest == path.parent.name and not path.parent.is_symlink():
                records.append(record)
            else:
                reading.problems.append(f"{what}: its record belongs to another folder")
    return records


def _divergent(store: RunStore) -> set[tuple[str, int]]:
    """(prompt_id, concurrency) of the texts that are shown side by side."""
    with contextlib.suppress(*DAMAGE):
        frame = pd.read_parquet(store.folder / "equivalence.parquet", columns=["prompt_id", "concurrency"])
        return set(frame.itertuples(index=False, name=None))
    return set()


def _slim(requests: pd.DataFrame, shown: set[tuple[str, int]]) -> pd.DataFrame:
    if requests.empty:
        return requests
    places = zip(requests["prompt_id"], requests["concurrency"], strict=True)
    keep = pd.Series([place in shown for place in places], index=requests.index)
    return requests.assign(text=requests["text"].where(keep, "")).drop(columns="accepted_by_depth")


def _thin(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """At most about 2,000 samples: of each stretch of a trial the worst value of each gauge."""
    if not frames:
        return pd.DataFrame()
    samples = max(4, _SAMPLES // len(frames))
    thinned = []
    for frame in frames:
        stretch = np.arange(len(frame)) * samples // max(len(frame), samples)
        worst = {c: "min" if c in _LOWEST else "first" if c in ("time", "trial") else "max" for c in frame.columns}
        thinned.append(frame.groupby(stretch).agg(worst) if len(frame) > samples else frame)
    return pd.concat(thinned, ignore_index=True)


def _in_window(own: pd.DataFrame, concurrency: int, records: Mapping[str, TrialRecord]) -> tuple[pd.DataFrame, float]:
    """Requests that finished in the steady windows of an arm's trials, and the windows' seconds together."""
    parts, seconds = [own.iloc[:0]], 0.0
    for digest, trial in own.groupby("trial"):
        if trial["ok"].any():
            start, end = window_of(records.get(str(digest)), trial, concurrency)
            parts.append(trial[trial["ok"] & trial["last"].between(start, end)])
            seconds += end - start
    return pd.concat(parts), seconds or float("nan")


def _column_sums(lists: pd.Series) -> np.ndarray[Any, np.dtype[np.float64]]:
    sums = np.zeros(max((len(item) for item in lists if item is not None), default=0))
    for item in lists:
        if item is not None:
            sums[: len(item)] += np.asarray(item, dtype=float)
    return sums


def _read(folder: Path) -> tuple[str, Index]:
    document = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    frames = {name: pd.read_parquet(folder / f"{name}.parquet") for name in _FRAMES}
    trials = [TrialRecord.model_validate(record) for record in document["trials"]]
    return document["stamp"], Index(trials=trials, problems=document["problems"], **frames)
