"""From a run to a release. The run's trials must be those that would be measured here: their digests say so."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engines import containers
from engines.base import Arm, Deployment, EngineError
from orchestrator import models
from orchestrator.deployments import make_deployments
from orchestrator.equivalence import near_tie_gap
from orchestrator.errors import InputError
from orchestrator.gpus import accelerator_name
from orchestrator.metrics import measure
from orchestrator.plan import Plan, make_plan
from orchestrator.promotion import packages, tree
from orchestrator.promotion.host import Finished
from orchestrator.promotion.release import (
    ID_LENGTH,
    RELEASE,
    Promise,
    Release,
    ReleaseRecord,
    SmokePrompt,
    load_release,
)
from orchestrator.prompts import Prompt, load_prompts
from orchestrator.records import ArmSummary, Decision, Interval, TrialState
from orchestrator.spec import SweepSpec
from orchestrator.statistics import Bootstrap, mean_interval, ratio_interval
from orchestrator.store import RunStore, writing

SMOKE_PROMPTS = 8
_COPIED = ("decision.json", "environment.json", "sweep.yaml")


def freeze(store: RunStore, releases: Path) -> Release:
    """Make the release of a run's decision under `releases`, or find it there: the same run gives the same release.

    InputError where the run decided nothing, or was measured with other models, software or prompts than are here.
    """
    decision = store.decision()
    if decision is None:
        raise InputError(f"{store.folder}: not decided yet; `orchestrate sweep FILE --resume` goes on with it")
    if decision.arm is None:
        raise InputError(f"{store.folder}: there is nothing to promote: {decision.sentence}")
    plan = measured_plan(store, decision.arm)
    record = describe(plan, store, decision, decision.arm)
    with tempfile.TemporaryDirectory() as staging, writing(releases):
        folder = Path(staging) / "release"
        _write(folder, store, record)
        return _keep(folder, releases, record.arm.name)


def measured_plan(store: RunStore, arm: str) -> Plan:
    """The plan that all valid trials of the arm are of, with the profile they were measured under."""
    spec = store.sweep(SweepSpec)
    prompt_set = load_prompts(spec.workload.prompts)
    valid = [record for record in store.trials.records() if record.state is TrialState.VALID]
    digests = {record.digest for record in valid if record.arm == arm}
    reasons = []
    for profile in spec.profiles:
        try:
            plan = make_plan(spec, profile, make_deployments(spec, profile, models.resolve), prompt_set)
        except (InputError, EngineError) as error:
            reasons.append(f"profile {profile}: {error}")
            continue
        if digests and digests <= {trial.digest for trial in plan.trials}:
            return plan
        reasons.append(f"profile {profile}: models, engine, prompts or workload are not those of {arm}'s trials")
    raise InputError(f"{store.folder}: this was not measured with what is here now ({'; '.join(reasons)})")


def describe(plan: Plan, store: RunStore, decision: Decision, name: str) -> ReleaseRecord:
    """release.json for one arm of the run."""
    arm, environment = plan.arm(name), store.environment()
    summary = _summary(decision, name)
    deployment = plan.deployments[arm.engine]
    smoke = _smoke(plan, store, decision, arm)
    match = plan.spec.profiles[plan.profile].match
    cards = environment.get("gpus") or [{}]
    return ReleaseRecord(
        run=store.folder.name,
        profile=plan.profile,
        verdict=decision.verdict.value,
        sentence=decision.sentence,
        arm=arm,
        deployment=deployment,
        identity=_identity(store, name),
        gpu=(match.accelerator or accelerator_name(str(cards[0].get("name", "")))) if match.gpus else None,
        gpus=match.gpus,
        gpu_memory_bytes=int(cards[0].get("memory_bytes", 0)) if match.gpus else 0,
        gpu_driver=cards[0].get("driver") if match.gpus else None,
        cpu=str(environment.get("cpu")),
        memory_bytes=int(environment.get("memory_bytes") or 0),
        commit=environment.get("commit"),
        max_tokens=plan.spec.workload.max_tokens,
        request_timeout_s=plan.spec.workload.request_timeout_s,
        near_tie_gap=_near_tie_gap(plan, decision, arm),
        confidence=decision.confidence,
        promise=Promise(
            concurrency=decision.concurrency,
            acceptance_length=summary.acceptance_length,
            tpot_ms=summary.tpot_ms,
            output_tok_s=summary.output_tok_s,
            ttft_ms_p90=summary.ttft_ms_p90,
            tpot_ms_p90=summary.tpot_ms_p90,
        ),
        smoke=smoke,
        smoke_acceptance_length=acceptance_interval(smoke, decision.confidence),
        smoke_tpot_ms=_tpot_interval(smoke, decision.confidence),
    )


def _summary(decision: Decision, arm: str) -> ArmSummary:
    found = [row for row in decision.summaries if (row.arm, row.concurrency) == (arm, decision.concurrency)]
    if not found:
        raise InputError(f"the run has no valid measurement of {arm} at concurrency {decision.concurrency}")
    return found[0]


def _near_tie_gap(plan: Plan, decision: Decision, arm: Arm) -> float:
    """The arm's own; plain decoding, which no gate judges, has the largest of its engine's. What rounding explains at
    least, where nothing was judged.
    """
    least = near_tie_gap(plan.spec.equivalence.near_tie, plan.deployments[arm.engine].dtype, ())
    gaps = {gate.arm: gate.near_tie_gap for gate in decision.gates if plan.arm(gate.arm).engine == arm.engine}
    return max(least, gaps.get(arm.name, max(gaps.values(), default=least)))


def _identity(store: RunStore, arm: str) -> dict[str, object]:
    return next(record.identity for record in store.trials.records() if record.arm == arm and record.identity)


def _smoke(plan: Plan, store: RunStore, decision: Decision, arm: Arm) -> list[SmokePrompt]:
    """Prompts of as many tasks as there are, each with the answer stored for it."""
    if plan.spec.workload.temperature > 0:
        raise InputError("the run sampled its answers (temperature > 0): there is no greedy answer to test against")
    measured = measure(store.trials.requests())
    mine = (measured["arm"] == arm.name) & (measured["concurrency"] == decision.concurrency) & measured["ok"]
    rows = measured[mine].drop_duplicates("prompt_id").sort_values("prompt_id")
    rows = rows.assign(turn=rows.groupby("task").cumcount()).sort_values(["turn", "task"], kind="stable")
    if len(rows) < 2:
        raise InputError("the run holds fewer than 2 answers of the arm, too few for a smoke test")
    prompts = {prompt.prompt_id: prompt for prompt in plan.prompt_set.prompts}
    chosen = rows.head(SMOKE_PROMPTS).to_dict("records")
    return [_smoke_prompt(prompts[row["prompt_id"]], row) for row in chosen]


def _smoke_prompt(prompt: Prompt, row: Mapping[Hashable, Any]) -> SmokePrompt:
    tpot = float(row["tpot"])
    return SmokePrompt(
        prompt_id=prompt.prompt_id,
        task=prompt.task,
        messages=list(prompt.messages),
        prompt_token_ids=[int(token) for token in row["prompt_token_ids"]],
        token_ids=[int(token) for token in row["token_ids"]],
        finish_reason=str(row["finish_reason"]),
        verify_steps=int(row["verify_steps"]),
        accepted=int(row["accepted"]),
        tpot_ms=None if np.isnan(tpot) else 1e3 * tpot,
    )


def acceptance_interval(smoke: Sequence[SmokePrompt], confidence: float) -> Interval:
    """Pooled acceptance length over prompts; 1 for plain decoding."""
    steps = np.array([prompt.verify_steps for prompt in smoke], dtype=float)
    accepted = np.array([prompt.accepted for prompt in smoke], dtype=float)
    if not accepted.any():
        return Interval(estimate=1.0, low=1.0, high=1.0)
    extra = ratio_interval(accepted, steps, *_bootstrap(confidence, "acceptance"))
    return Interval(estimate=1 + extra.estimate, low=1 + extra.low, high=1 + extra.high)


def _tpot_interval(smoke: Sequence[SmokePrompt], confidence: float) -> Interval:
    values = np.array([prompt.tpot_ms for prompt in smoke if prompt.tpot_ms is not None])
    if len(values) < 2:
        raise InputError("fewer than 2 of the run's answers have more than one chunk: TPOT cannot be promised")
    return mean_interval(values, *_bootstrap(confidence, "tpot"))


def _bootstrap(confidence: float, name: str) -> tuple[Bootstrap, np.random.Generator]:
    bootstrap = Bootstrap(confidence, 10_000, 0)
    return bootstrap, bootstrap.stream("release", name)


def _write(folder: Path, store: RunStore, record: ReleaseRecord) -> None:
    folder.mkdir()
    for name in _COPIED:
        shutil.copyfile(store.folder / name, folder / name)
    installed = packages.describe(_python(record.deployment), _run)
    (folder / "packages.json").write_text(json.dumps(installed, indent=1, sort_keys=True), encoding="utf-8")
    (folder / RELEASE).write_text(record.model_dump_json(indent=1), encoding="utf-8")
    (folder / tree.SUMS).write_text(tree.sums(folder), encoding="utf-8")


def _keep(folder: Path, releases: Path, arm: str) -> Release:
    """Move a finished release to its place; one that is there already is checked and kept."""
    identifier = tree.identity((folder / tree.SUMS).read_text(encoding="utf-8"))[:ID_LENGTH]
    place = releases / f"{re.sub(r'[^A-Za-z0-9]+', '-', arm).strip('-').lower()}-{identifier}"
    if not place.exists():
        releases.mkdir(parents=True, exist_ok=True)
        partial = releases / f".{place.name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(folder, partial)
        partial.rename(place)
    return load_release(place)


def _python(deployment: Deployment) -> list[str]:
    """How to run the measured interpreter, which may be an image's."""
    return containers.python(containers.address(deployment.image)) if deployment.image else [deployment.interpreter]


def _run(argv: Sequence[str]) -> Finished:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=packages.TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finished(127, "", str(error))
    return Finished(done.returncode, done.stdout, done.stderr)
