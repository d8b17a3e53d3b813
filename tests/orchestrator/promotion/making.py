"""Runs of the fake engine without Ray, and what is made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import save_file

from orchestrator import models
from orchestrator.decision import decide
from orchestrator.deployments import make_deployments
from orchestrator.environment import describe
from orchestrator.equivalence import compare_texts, judge
from orchestrator.plan import make_plan
from orchestrator.prompts import load_prompts
from orchestrator.records import Decision
from orchestrator.slots import Slot
from orchestrator.spec import SweepSpec, dump_spec
from orchestrator.store import RunStore
from tests.orchestrator.acting import ANY_LOAD, MATCH
from tests.orchestrator.sweeps import fake_sweep

FAST = {"method": "dflash", "name": "chain", "options": {"step_ms": 2.0, "tokens_per_step": 3}}
FASTER = {"method": "ddtree", "name": "tree", "budget": 15, "options": {"step_ms": 2.0, "tokens_per_step": 5}}
PLAIN = {"method": "autoregressive", "name": "autoregressive", "options": {"step_ms": 4.0}}


def model_folders(folder: Path) -> dict[str, str]:
    """Two folders that look like models; the fake engine never opens them."""
    for name in ("target", "drafter"):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text(f'{{"is": "{name}"}}')
        save_file({"weight": np.zeros(1, dtype=np.float32)}, folder / name / "model.safetensors")
    return {name: str(folder / name) for name in ("target", "drafter")}


async def measured_run(folder: Path, arm: dict[str, Any], found: dict[str, str]) -> RunStore:
    """A whole run of plain decoding and one arm, decided, as a sweep leaves it."""
    profile = fake_sweep()["profiles"]["local"] | {"models": found}
    workload = {"prompts": {"set": "orchestrate", "count": 16, "seed": 3}, "max_tokens": 24}
    changes: dict[str, Any] = {"arms": [PLAIN, arm], "workload": workload, "profiles": {"local": profile}}
    return await swept(folder, fake_sweep(**changes), arm["name"])


async def swept(folder: Path, sweep: dict[str, Any], winner: str) -> RunStore:
    """All trials of a sweep's first blocks under its profile local, decided for one arm."""
    spec = SweepSpec.model_validate(sweep)
    deployments = make_deployments(spec, "local", models.resolve)
    plan = make_plan(spec, "local", deployments, load_prompts(spec.workload.prompts))
    store, slot = RunStore(folder), Slot("slot-0", MATCH, ANY_LOAD)
    store.create(dump_spec(spec), describe())
    for trial in plan.trials:
        found_there = await slot.run(trial)
        store.trials.write(
            found_there.record,
            found_there.requests,
            found_there.telemetry,
            found_there.counters,
            found_there.stages,
            found_there.engine_log,
        )
    await slot.close()
    requests = store.trials.requests()
    gates, _ = judge(compare_texts(requests, plan.arms, "autoregressive"), {}, 0.0)
    store.write_decision(decide(plan, store.trials.records(), requests, gates))
    # Who is fastest on a busy machine is chance, and not what promotion is about.
    change_decision(store, verdict="winner", arm=winner, sentence=f"{winner} wins, for the tests' sake")
    return store


def change_decision(store: RunStore, **changes: Any) -> None:
    """Rewrite a run's decision."""
    decision = store.decision()
    assert decision is not None
    store.write_decision(Decision.model_validate(decision.model_dump() | changes))


def target(root: Path, port: int, defects: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A local target with quick steps that any load of the machine passes."""
    values: dict[str, Any] = {
        "kind": "local",
        "root": str(root),
        "allow_local_profile": True,
        "ports": [port + 1, port + 5],
        "router": {"listen": f"127.0.0.1:{port}"},
        "smoke": {"tpot_tolerance": 10},
        "canary": [{"share": 20, "for_s": 0}],
        "watch": {"margin": 0.9},
        "warm_for_s": 3600,
        "drain_s": 30,
        "ready_s": 60,
        "environment": {"FAKE_ENGINE_DEFECTS": json.dumps(defects)} if defects else {},
    }
    return values | changes


def write_deploy(path: Path, **targets: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump({"targets": targets}, sort_keys=False))
    return path
