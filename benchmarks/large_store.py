"""A large store of SYNTHETIC numbers, for `benchmarks.dashboard`.

A few runs are drawn and decided by the product's own code; the others are copies of them: their own folders, decisions,
journals and indexes, and hard links to the trials, which the dashboard does not read once a run has its index.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd

from engines.base import Arm, Deployment, Method, SpecCounters, StageTimes
from orchestrator.decision import decide
from orchestrator.index import build_index, stamp_of, write_index
from orchestrator.metrics.outputs import make_outputs
from orchestrator.plan import Plan, Trial, make_plan
from orchestrator.prompts import Prompt, PromptSet
from orchestrator.records import (
    DraftTrees,
    GateResult,
    JournalEntry,
    TreeNode,
    TreeStep,
    TrialRecord,
    TrialState,
    request_frame,
)
from orchestrator.spec import SweepSpec, dump_spec
from orchestrator.store import RunStore, write_text
from orchestrator.trees import STEPS

RUNS, TEMPLATES, BLOCKS, PROMPTS = 200, 4, 10, 500
_ACCEPTED = {None: 1.3, 7: 1.5, 15: 2.2, 31: 2.5}
_STEP_MS = {None: 31.0, 7: 37.5, 15: 43.0, 31: 55.0}
_TASKS = ("chat", "code", "maths", "rewriting")


def make_store(folder: Path) -> None:
    """The whole store, unless it is there."""
    if len(list(folder.glob("*/index/index.json"))) == RUNS:
        return
    shutil.rmtree(folder, ignore_errors=True)
    for number in range(RUNS):
        store = RunStore(folder / f"synthetic-{number:03d}")
        if number < TEMPLATES:
            _draw(store, number)
        else:
            _copy(RunStore(folder / f"synthetic-{number % TEMPLATES:03d}"), store, number)


def count(folder: Path) -> dict[str, int]:
    """What the store holds, counted in it: requests by the rows of one run's files for each template."""
    rows = [
        sum(len(pd.read_parquet(p, columns=["error"])) for p in (folder / f"synthetic-{n:03d}").glob("trials/*/req*"))
        for n in range(TEMPLATES)
    ]
    trials = sum(1 for _ in folder.glob("*/trials/*/trial.json"))
    return {"runs": len(list(folder.glob("*/sweep.yaml"))), "trials": trials, "requests": sum(rows) * RUNS // TEMPLATES}


def _draw(store: RunStore, number: int) -> None:
    draw = np.random.default_rng(number)
    plan = _plan(number)
    store.create(dump_spec(plan.spec), {"synthetic": True, "gpus": [{"name": f"SYNTHETIC GPU {number % 2}"}]})
    clock = datetime(2026, 1, 1, tzinfo=UTC)
    for trial in plan.trials:
        clock = _trial(store, trial, draw, clock)
    gates = [
        GateResult(arm=a.name, prompts=64, exact=64, near_ties=0, violations=0, near_tie_gap=0.25, passed=True)
        for a in plan.arms
        if a.speculative
    ]
    trials, requests = store.trials.records(), store.trials.requests()
    decision = decide(plan, trials, requests, gates)
    store.write_outputs(make_outputs(plan, trials, requests, decision.summaries, store.trials.telemetry))
    store.write_decision(decision)
    write_index(store, build_index(store), stamp_of(store))


def _plan(number: int) -> Plan:
    model = f"synthetic-{(135, 360)[number % 2]}m"
    engine = f"synthetic-{'ab'[number // 2 % 2]}"
    profile = {"engine": engine, "engines": {engine: {}}, "models": {"target": model, "drafter": "synthetic-drafter"}}
    arms = [{"method": "autoregressive"}, {"method": "dflash"}, {"method": "ddtree", "grid": {"budget": [7, 15, 31]}}]
    spec = SweepSpec.model_validate(
        {
            "question": f"How fast does a large store open? Template {number} (SYNTHETIC numbers)",
            "arms": arms,
            "workload": {"max_tokens": 96},
            "blocks": {"count": BLOCKS, "seed": number},
            "selection": {"resamples": 1000},
            "slo": {"tpot_ms": 40},
            "profiles": {"local": profile},
        }
    )
    prompts = tuple(
        Prompt(f"{_TASKS[i % 4]}-{i:04d}", _TASKS[i % 4], (("user", f"SYNTHETIC {i}"),))
        for i in range(BLOCKS * PROMPTS)
    )
    deployment = Deployment("synthetic 0", "python", "t", "0" * 64, "d", "1" * 64, "cpu", "bfloat16", 2, 4, 2048)
    return make_plan(spec, "local", {engine: deployment}, PromptSet("synthetic", "2" * 64, 0, prompts))


def _trial(store: RunStore, trial: Trial, draw: np.random.Generator, clock: datetime) -> datetime:
    rows, seconds = _requests(trial, draw)
    steps, accepted = (sum(int(str(row[name])) for row in rows) for name in ("verify_steps", "accepted"))
    step = _STEP_MS[trial.arm.budget] / 1e3 if trial.arm.speculative else 0.027
    stages = StageTimes(steps=steps, draft=0.2 * step * steps, verify=0.8 * step * steps)
    counters = SpecCounters(verify_steps=steps, accepted=accepted, emitted=steps + accepted)
    record = TrialRecord(
        digest=trial.digest,
        arm=trial.arm.name,
        concurrency=trial.concurrency,
        block=trial.block,
        state=TrialState.VALID,
        slot=f"slot-{trial.block % 2}",
        identity={"engine": trial.arm.engine, "method": trial.arm.method.value, "budget": trial.arm.budget},
        counters=asdict(counters),
        stages=asdict(stages),
        warmup_requests=3,
        warmup_flat=True,
        started_at=clock.isoformat(timespec="milliseconds"),
        duration=seconds,
        window=(0.0, seconds),
    )
    times = np.arange(0.5, seconds, 0.5)
    noise = draw.normal(size=(5, len(times)))
    telemetry = pd.DataFrame(
        {
            "time": times,
            "cpu_percent": 96 + noise[0],
            "rss_bytes": 1.4e9 + 1e6 * noise[1],
            "available_bytes": 9.1e9 + 1e6 * noise[2],
            "gpu_sm_clock_mhz": 1980 + 8 * noise[3],
            "gpu_power_w": 410 + 12 * noise[4],
        }
    )
    store.trials.write(record, request_frame(rows), telemetry, counters, stages, b"", _trees(trial))
    for state in (TrialState.STARTED, TrialState.VALID):
        store.journal(_entry(record, state, clock, seconds))
    return clock + timedelta(seconds=seconds + 1)


def _trees(trial: Trial) -> DraftTrees | None:
    """Of an arm's first trial: binary trees as large as its budget."""
    if trial.block or not trial.arm.speculative:
        return None
    nodes = [TreeNode(token_id=0, text="root", parent=-1, depth=0, log_prob=0.0)]
    for number in range(1, 1 + (trial.arm.budget or 7)):
        parent = (number - 1) // 2 if trial.arm.budget else number - 1
        depth, score = nodes[parent].depth + 1, -0.1 * number
        nodes.append(TreeNode(token_id=number, text=f" t{number}", parent=parent, depth=depth, log_prob=score))
    step = TreeStep(nodes=nodes, accepted=[0, 1], bonus_id=1, bonus_text=" bonus")
    return DraftTrees(prompt_id=trial.prompts[0].prompt_id, steps=[step] * STEPS)


def _entry(record: TrialRecord, state: TrialState, clock: datetime, seconds: float) -> JournalEntry:
    return JournalEntry(
        time=clock.isoformat(),
        trial=record.digest,
        arm=record.arm,
        concurrency=record.concurrency,
        block=record.block,
        state=state,
        slot=record.slot,
        seconds=seconds if state is TrialState.VALID else 0.0,
    )


def _requests(trial: Trial, draw: np.random.Generator) -> tuple[list[dict[str, object]], float]:
    arm: Arm = trial.arm
    step = (_STEP_MS[arm.budget] if arm.speculative else 27.0) / 1e3
    start, rows = 0.0, []
    for prompt in trial.prompts:
        tokens = 40 + sum(prompt.prompt_id.encode()) % 57
        length = 1 + (_ACCEPTED[arm.budget] * draw.uniform(0.8, 1.2) if arm.method is not Method.AUTOREGRESSIVE else 0)
        steps = max(1, round((tokens - 1) / length))
        first = start + 0.18 * draw.normal(1, 0.03)
        last = first + steps * step * draw.normal(1, 0.01)
        rows.append(_request(prompt, tokens, steps, start, first, last))
        start = last
    return rows, start


def _request(prompt: Prompt, tokens: int, steps: int, start: float, first: float, last: float) -> dict[str, object]:
    accepted = tokens - 1 - steps
    depths = [round(accepted * share) for share in (0.5, 0.3)] if accepted else []
    return {
        "prompt_id": prompt.prompt_id,
        "task": prompt.task,
        "scheduled": start,
        "sent": start,
        "first": first,
        "last": last,
        "first_chunk_tokens": 1,
        "chunks": steps + 1,
        "prompt_tokens": 24,
        "output_tokens": tokens,
        "finish_reason": "stop",
        "verify_steps": steps,
        "drafted": 15 * steps if accepted else 0,
        "accepted": accepted,
        "emitted": tokens - 1,
        "accepted_by_depth": [*depths, accepted - sum(depths)] if accepted else [],
        "cached_tokens": 0,
        "token_ids": list(range(tokens)),
        "prompt_token_ids": [1, 2, 3],
        "text": f"SYNTHETIC text of {prompt.prompt_id}",
        "error": "",
        "chunk_times": [],
        "chunk_tokens": [],
        "coalesced": 0,
    }


def _copy(template: RunStore, store: RunStore, number: int) -> None:
    """The template's trials by link, everything else as files of its own; it began `number` hours later."""
    shutil.copytree(template.trials.folder, store.trials.folder, copy_function=os.link)
    for name in ("sweep.yaml", "environment.json", "decision.json", "outputs.json"):
        shutil.copyfile(template.folder / name, store.folder / name)
    later = timedelta(hours=number)
    lines = [
        entry.model_copy(update={"time": (datetime.fromisoformat(entry.time) + later).isoformat()}).model_dump_json()
        for entry in template.entries()
    ]
    write_text(store.folder / "journal.jsonl", "\n".join(lines) + "\n")
    shutil.copytree(template.folder / "index", store.folder / "index")
    document = json.loads((store.folder / "index" / "index.json").read_text())
    (store.folder / "index" / "index.json").write_text(json.dumps(document | {"stamp": stamp_of(store)}))
    (store.folder / "index" / "card.json").unlink(missing_ok=True)
