"""SYNTHETIC runs: a run folder written through the store from made-up numbers, for the dashboards' tests alone.

Nothing here was measured. Requests are drawn from a plain model of speculative decoding; summaries, gates and the
decision are then the product's own, computed from them.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd

from engines.base import Arm, Deployment, Method, Ranking, SpecCounters, StageTimes
from orchestrator.decision import decide
from orchestrator.equivalence import compare_texts, judge
from orchestrator.metrics.outputs import make_outputs
from orchestrator.plan import Plan, Trial, make_plan
from orchestrator.prompts import Prompt, PromptSet
from orchestrator.records import DraftTrees, JournalEntry, TreeNode, TreeStep, TrialRecord, TrialState, request_frame
from orchestrator.spec import SweepSpec, dump_spec
from orchestrator.store import RunStore

HOSTILE = "</script><script>alert('x')</script><img src=https://example.invalid/x.png> %{y} & <b>bold</b>"
"""A model's output that would run, load or format something wherever it is not treated as text."""

START = datetime(2026, 3, 14, 9, 0, tzinfo=UTC)
TREES = {"method": "ddtree", "grid": {"budget": [7, 15, 31, 63]}}
_WORDS = ("the", "kettle", "rises", "over", "nine", "quiet", "fields", "and", "turns", "to", "glass", "again")
_TASKS = {"chat": 0.85, "code": 1.25, "maths": 1.1, "rewriting": 1.3}
_ACCEPTED = {None: 1.25, 7: 1.5, 15: 2.2, 31: 2.5, 63: 2.7}
_VERIFY = {None: 1.33, 7: 1.33, 15: 1.61, 31: 2.17, 63: 3.67}
_PLAIN_MS = 26.5


@dataclass(frozen=True)
class Scenario:
    """What a synthetic run shows. `divergent`: texts of an arm that depart from plain decoding, with the logit gap."""

    question: str
    arms: tuple[dict[str, Any], ...]
    concurrency: tuple[int, ...] = (1,)
    divergent: dict[str, list[float]] = field(default_factory=dict)
    bad: dict[str, str] = field(default_factory=dict)
    gpu: bool = False


WINNER = Scenario(
    "Which tree budget decodes fastest on this machine? (SYNTHETIC numbers)",
    ({"method": "autoregressive"}, {"method": "dflash"}, TREES),
    divergent={"dflash": [0.031], "ddtree-budget=31": [0.125, 0.062], "ddtree-budget=63": [2.75, 0.094, 0.5]},
)
TIE = Scenario(
    "Do two entries of the same arm end in a tie? (SYNTHETIC numbers)",
    ({"method": "autoregressive"}, {"method": "autoregressive", "name": "autoregressive-again"}),
)
INVALID = Scenario(
    "Does a disturbed baseline stop the decision? (SYNTHETIC numbers)",
    ({"method": "autoregressive"}, {"method": "dflash"}, TREES),
    bad={"autoregressive": "other processes took 1.4 cores from the engine on average"},
)
LOAD = Scenario(
    "Where does batching overtake speculation? (SYNTHETIC numbers)",
    ({"method": "autoregressive"}, {"method": "dflash"}, TREES, {"method": "ngram"}),
    concurrency=(1, 2, 4),
    bad={"ngram": "warm-up did not become flat in 8 requests"},
    gpu=True,
)
SCENARIOS = {"winner": WINNER, "tie": TIE, "invalid": INVALID, "load": LOAD}


def synthetic_run(folder: Path, scenario: Scenario, *, share: float = 1.0, decided: bool = True) -> RunStore:
    """A run under `folder`. `share` below 1 leaves later trials out; `decided` writes gate and decision."""
    plan = plan_of(scenario)
    store = RunStore(folder)
    store.create(dump_spec(plan.spec), _environment())
    draw, clock = random.Random(7), START
    for trial in plan.trials[: round(share * len(plan.trials))]:
        clock = _measure(store, trial, scenario, draw, clock)
    if decided:
        _decide(store, plan, scenario)
    return store


def plan_of(scenario: Scenario) -> Plan:
    """What a sweep of the scenario would run."""
    engine: dict[str, Any] = {"engine": "synthetic", "engines": {"synthetic": {"dtype": "bfloat16"}}}
    if scenario.gpu:
        engine |= {"match": {"gpus": 1}, "price_per_gpu_hour": 2.5}
    spec = SweepSpec.model_validate(
        {
            "question": scenario.question,
            "arms": list(scenario.arms),
            "workload": {"concurrency": list(scenario.concurrency), "max_tokens": 96},
            "blocks": {"count": 4, "seed": 5},
            "selection": {"resamples": 1000},
            "slo": {"tpot_ms": 40},
            "profiles": {"local": {**engine, "models": {"target": "synthetic-135m", "drafter": "synthetic-drafter"}}},
        }
    )
    prompts = tuple(
        Prompt(f"{task}-{number:02d}", task, (("user", f"SYNTHETIC {task} prompt {number}"),))
        for task in _TASKS
        for number in range(1, 9)
    )
    deployment = Deployment("synthetic 0", "python", "t", "0" * 64, "d", "1" * 64, "cpu", "bfloat16", 2, 4, 2048)
    return make_plan(spec, "local", {"synthetic": deployment}, PromptSet("synthetic", "2" * 64, 0, prompts))


def _measure(store: RunStore, trial: Trial, scenario: Scenario, draw: random.Random, clock: datetime) -> datetime:
    arm = trial.arm
    bad = scenario.bad.get(arm.name, "") if trial.block == 1 else ""
    drift = draw.gauss(1, 0.004)
    rows, seconds = _requests(trial, scenario, draw, drift)
    counters = _total(rows)
    stages = _stages(arm, trial.concurrency, counters.verify_steps, drift)
    record = TrialRecord(
        digest=trial.digest,
        arm=arm.name,
        concurrency=trial.concurrency,
        block=trial.block,
        state=TrialState.INVALID if bad else TrialState.VALID,
        reason=bad,
        slot="slot-0",
        identity={"engine": "synthetic", "method": arm.method.value, "budget": arm.budget, "version": "0.0-synthetic"},
        counters=asdict(counters),
        stages=asdict(stages),
        warmup_requests=3,
        warmup_flat=True,
        started_at=clock.isoformat(timespec="milliseconds"),
        duration=seconds,
        window=(0.0, seconds),
    )
    telemetry, trees = _telemetry(seconds, draw, scenario.gpu), _trees(trial)
    store.trials.write(record, request_frame(rows), telemetry, counters, stages, b"", trees)
    for state in (TrialState.STARTED, record.state):
        entry = {"time": clock.isoformat(), "trial": trial.digest, "arm": arm.name, "block": trial.block}
        store.journal(JournalEntry(**entry, concurrency=trial.concurrency, state=state, slot="slot-0", reason=bad))
    return clock + timedelta(seconds=seconds + 1.2)


def _requests(
    trial: Trial, scenario: Scenario, draw: random.Random, drift: float
) -> tuple[list[dict[str, object]], float]:
    free = [0.0] * trial.concurrency
    rows = []
    for prompt in trial.prompts:
        slot = free.index(min(free))
        row, free[slot] = _request(trial, prompt, scenario, draw, drift, free[slot])
        rows.append(row)
    return rows, max(free)


def _request(
    trial: Trial, prompt: Prompt, scenario: Scenario, draw: random.Random, drift: float, start: float
) -> tuple[dict[str, object], float]:
    text = random.Random(prompt.prompt_id)  # the same text in every arm
    tokens = [text.randrange(len(_WORDS)) for _ in range(text.randint(40, 96))]
    gaps = scenario.divergent.get(trial.arm.name, [])
    affected = sorted(f"{task}-01" for task in _TASKS)[: len(gaps)]
    if prompt.prompt_id in affected:
        place = 12 + 9 * affected.index(prompt.prompt_id)
        tokens = [*tokens[:place], *((token + 5) % len(_WORDS) for token in tokens[place:])]
    depths = _steps(trial.arm, _TASKS[prompt.task], len(tokens) - 1, text)
    first = start + 0.18 * draw.gauss(1, 0.03) * trial.concurrency**0.5
    step = sum(_step_ms(trial.arm, trial.concurrency).values()) / 1e3
    last = first + len(depths) * step * drift * draw.gauss(1, 0.01)
    words = " ".join(_WORDS[token] for token in tokens)
    row: dict[str, object] = {
        "prompt_id": prompt.prompt_id,
        "task": prompt.task,
        "scheduled": start,
        "sent": start + 0.0004,
        "first": first,
        "last": last,
        "first_chunk_tokens": 1,
        "chunks": len(depths) + 1,
        "prompt_tokens": 24,
        "output_tokens": len(tokens),
        "finish_reason": "stop" if len(tokens) < 90 else "length",
        "verify_steps": len(depths),
        "drafted": len(depths) * (trial.arm.budget or 15) if trial.arm.speculative else 0,
        "accepted": sum(depths),
        "emitted": len(tokens) - 1,
        "accepted_by_depth": [sum(depth > k for depth in depths) for k in range(max(depths))],
        "cached_tokens": 0,
        "token_ids": tokens,
        "prompt_token_ids": [1, 2, 3],
        "text": f"{HOSTILE} {words}" if prompt.prompt_id == "chat-01" else words,
        "error": "",
        "chunk_times": [],
        "chunk_tokens": [],
        "coalesced": 0,
    }
    return row, last


def _steps(arm: Arm, ease: float, tokens: int, draw: random.Random) -> list[int]:
    """Accepted draft tokens of each step until `tokens` are out."""
    if not arm.speculative:
        return [0] * tokens
    mean = ease * _ACCEPTED.get(arm.budget, 1.3) * (0.5 if arm.method is Method.NGRAM else 1)
    depths: list[int] = []
    while (left := tokens - sum(depths) - len(depths)) > 0:
        depth = 0
        while depth < 15 and draw.random() < mean / (1 + mean):
            depth += 1
        depths.append(min(depth, left - 1))
    return depths


def _step_ms(arm: Arm, concurrency: int) -> dict[str, float]:
    busy = concurrency**0.35 if not arm.speculative else concurrency**0.75
    if not arm.speculative:
        return {"draft": 0.0, "build": 0.0, "verify": _PLAIN_MS * busy, "commit": 0.0, "host": 0.5}
    tree = arm.budget is not None
    verify = 21 * _VERIFY[arm.budget] * busy
    draft = 0.3 if arm.method is Method.NGRAM else 8.6
    return {"draft": draft, "build": 0.42 if tree else 0.0, "verify": verify, "commit": 0.38, "host": 0.6}


def _trees(trial: Trial) -> DraftTrees | None:
    """Of the first trial of an arm that drafts from a model: three steps, as a best-first search would grow them."""
    if trial.block or trial.concurrency > 1 or not trial.arm.needs_drafter:
        return None
    draw = random.Random(trial.arm.name)
    return DraftTrees(prompt_id="chat-01", steps=[_tree(trial.arm.budget, draw) for _ in range(3)])


def _tree(budget: int | None, draw: random.Random) -> TreeStep:
    depth, wide = 7, 1 if budget is None else 4
    costs = [[0.2 + 0.9 * rank + draw.random() for rank in range(wide)] for _ in range(depth)]
    nodes = [TreeNode(token_id=900, text="root", parent=-1, depth=0, log_prob=0.0)]
    grown = [(costs[0][rank], 1, 0, rank) for rank in range(wide)]
    while grown and len(nodes) <= (budget or depth):
        cost, level, parent, rank = grown.pop(grown.index(min(grown)))
        text = HOSTILE if len(nodes) == 2 else f" {_WORDS[(level * 5 + rank) % len(_WORDS)]}"
        nodes.append(TreeNode(token_id=10 * level + rank, text=text, parent=parent, depth=level, log_prob=-cost))
        if level < depth:
            grown += [(cost + costs[level][r], level + 1, len(nodes) - 1, r) for r in range(wide)]
    accepted = [draw.randrange(len(nodes))]
    while accepted[0]:
        accepted.insert(0, nodes[accepted[0]].parent)
    return TreeStep(nodes=nodes, accepted=accepted, bonus_id=7, bonus_text=" bonus\n")


def _stages(arm: Arm, concurrency: int, steps: int, drift: float) -> StageTimes:
    times = {name: ms * steps * drift / 1e3 for name, ms in _step_ms(arm, concurrency).items()}
    return StageTimes(steps=steps, **times, prefill=0.1)


def _total(rows: list[dict[str, object]]) -> SpecCounters:
    frame = pd.DataFrame(rows)
    return SpecCounters(
        verify_steps=int(frame["verify_steps"].sum()),
        drafted=int(frame["drafted"].sum()),
        accepted=int(frame["accepted"].sum()),
        emitted=int(frame["emitted"].sum()),
    )


def _telemetry(seconds: float, draw: random.Random, gpu: bool) -> pd.DataFrame:
    times = [0.5 * beat for beat in range(1, max(3, int(2 * seconds)))]
    columns: dict[str, list[float]] = {
        "time": times,
        "cpu_percent": [draw.gauss(96, 1.2) for _ in times],
        "other_cpu_cores": [abs(draw.gauss(0.03, 0.03)) for _ in times],
        "rss_bytes": [1.4e9 + 2e5 * time for time in times],
        "available_bytes": [9.1e9 for _ in times],
    }
    if gpu:
        columns["gpu_sm_clock_mhz"] = [1980 + draw.gauss(0, 8) for _ in times]
        columns["gpu_power_w"] = [410 + draw.gauss(0, 12) for _ in times]
        columns["gpu_temperature_c"] = [61 + draw.gauss(0, 1) for _ in times]
    return pd.DataFrame(columns)


def _decide(store: RunStore, plan: Plan, scenario: Scenario) -> None:
    requests = store.trials.requests()
    agreements = compare_texts(requests, plan.arms, plan.spec.selection.baseline)
    rankings = {}
    for agreement in agreements:
        scripted = scenario.divergent.get(agreement.arm, [])
        for number, candidate in enumerate(agreement.candidates):
            tokens = (candidate.expected, candidate.actual)
            rankings[candidate] = Ranking(tokens, (-0.5, -0.5 - scripted[number % len(scripted)]))
    gates, divergences = judge(agreements, rankings, 0.25)
    store.write_divergences(divergences)
    decision = decide(plan, store.trials.records(), requests, gates)
    store.write_outputs(
        make_outputs(plan, store.trials.records(), requests, decision.summaries, store.trials.telemetry)
    )
    store.write_decision(decision)


def _environment() -> dict[str, Any]:
    return {
        "synthetic": True,
        "machine": {"cpu": "Synthetic CPU 9000", "cores": 2, "memory_gib": 15.6, "gpus": []},
        "software": {"orchestrate": "0.1.0", "python": "3.11.2", "torch": "2.13.0", "ray": "2.60.0"},
        "git": None,
    }
