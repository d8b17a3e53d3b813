"""One trial on a running engine: configure, identify, warm up, measure, and say whether it counts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from engines.base import Endpoint, Engine, Identity, SpecCounters, StageTimes, check_identity
from orchestrator.disturbance import gpu_disturbance
from orchestrator.load.client import LoadClient, LoadResult
from orchestrator.load.record import load_record
from orchestrator.metrics import open_window, steady_window
from orchestrator.plan import Trial
from orchestrator.process import EngineProcess
from orchestrator.records import DraftTrees, LoadRecord, TrialRecord, TrialState, request_frame
from orchestrator.stage_identity import disagreement
from orchestrator.synthetic import refuse_synthetic
from orchestrator.telemetry import Sampler
from orchestrator.times import now
from orchestrator.trees import record_trees
from orchestrator.validity import Limits, check, completed, disturbance
from orchestrator.warmup import Warmup, warm_up

if TYPE_CHECKING:
    import pandas as pd

_DEATH_S = 0.5
"""How long a failure waits for the news that the engine died."""


@dataclass(frozen=True)
class Measurement:
    """A trial's record and its files, as the store takes them. `disturbed`: it does not count, and the machine is why,
    not the engine.
    """

    record: TrialRecord
    requests: pd.DataFrame
    telemetry: pd.DataFrame
    counters: SpecCounters
    stages: StageTimes | None
    trees: DraftTrees | None = None
    engine_log: bytes = b""
    disturbed: bool = False

    def on(self, hardware: dict[str, object], log: bytes) -> Measurement:
        """With what the slot adds: what it is, and what the engine wrote."""
        return replace(self, record=self.record.model_copy(update={"hardware": hardware}), engine_log=log)


@dataclass(frozen=True)
class _Run:
    """What the load left behind. Counters are the server's over the load alone."""

    result: LoadResult
    sampler: Sampler
    zero: float
    seconds: float
    counters: SpecCounters
    stages: StageTimes | None
    reason: str


def failed(trial: Trial, slot: str, reason: str, started_at: str, state: TrialState = TrialState.FAILED) -> Measurement:
    """A trial that never came to a measurement: it has no requests. `invalid` is the state where the engine is why."""
    import pandas as pd

    record = TrialRecord(
        digest=trial.digest,
        arm=trial.arm.name,
        concurrency=trial.concurrency,
        block=trial.block,
        state=state,
        reason=reason,
        slot=slot,
        identity={},
        counters={},
        stages=None,
        warmup_requests=0,
        warmup_flat=False,
        started_at=started_at,
        duration=0.0,
        window=(0.0, 0.0),
    )
    return Measurement(record, request_frame([]), pd.DataFrame(), SpecCounters(), None)


async def measure(
    process: EngineProcess,
    trial: Trial,
    slot: str,
    limits: Limits,
    gpu_uuids: Sequence[str] = (),
    stage: Callable[[str], None] = lambda _: None,
) -> Measurement:
    """Measure a trial. EngineError when the engine cannot be brought to the arm; a load that fails is an invalid
    measurement. `stage` hears what is going on."""
    engine, endpoint, started_at = process.engine, process.endpoint, now()
    await engine.configure(endpoint, trial.arm)
    identity = await engine.identify(endpoint)
    check_identity(identity, trial.arm, trial.deployment)
    refuse_synthetic(trial.arm, trial.deployment, identity.settings, os.environ)
    async with LoadClient(engine, endpoint, trial.workload, cores=process.cores) as client:
        stage("warming up")
        warmup = await warm_up(client, trial.prompts, trial.concurrency, trial.warmup)
        await engine.flush(endpoint)
        stage("measuring")
        run = await _load(process, client, trial, gpu_uuids, stage)
    wrong = run.reason or check(run.result.answers, trial.concurrency, run.counters)
    disturbed = "" if wrong else _disturbance(run, limits)
    reason = wrong or disturbed or _stage_doubt(trial, identity, run, limits)
    requests = request_frame([answer.row(run.zero) for answer in run.result.answers])
    window = (0.0, run.seconds) if run.reason else _window(requests, trial)
    load = load_record(trial, client, run.result, requests, window)
    return Measurement(
        record=_record(trial, slot, identity, warmup, run, window, load, reason, started_at),
        requests=requests,
        telemetry=run.sampler.frame(),
        counters=run.counters,
        stages=run.stages,
        trees=None if run.reason else await record_trees(engine, endpoint, trial, run.result.answers),
        disturbed=bool(disturbed),
    )


def _disturbance(run: _Run, limits: Limits) -> str:
    machine = disturbance(run.result.answers, run.sampler.load(), limits)
    return machine or gpu_disturbance(run.sampler.rows, limits.clock_spread)


def _stage_doubt(trial: Trial, identity: Identity, run: _Run, limits: Limits) -> str:
    """Where stages explain the answers' time: one request at a time, on an engine that is not simulated."""
    if run.stages is None or trial.concurrency > 1 or trial.arrivals or identity.settings.get("simulated"):
        return ""
    return disagreement(run.result.answers, run.stages, limits.identity_error)


def _window(requests: pd.DataFrame, trial: Trial) -> tuple[float, float]:
    return open_window(requests) if trial.arrivals else steady_window(requests, trial.concurrency)


async def _load(
    process: EngineProcess,
    client: LoadClient,
    trial: Trial,
    gpu_uuids: Sequence[str],
    stage: Callable[[str], None],
) -> _Run:
    engine, endpoint = process.engine, process.endpoint
    counters, stages = await engine.counters(endpoint), await engine.stages(endpoint)
    zero = time.perf_counter()

    def heard(answered: int) -> None:
        stage(f"measuring: {answered} of {len(trial.prompts)} answered")

    with Sampler(process.pid, zero, gpu_uuids, client.worker.pid) as sampler:
        result = await client.run(trial.prompts, trial.concurrency, trial.workload.max_tokens, trial.arrivals, heard)
        seconds = time.perf_counter() - zero
    if result.failure:
        reason = await cause(process, result.failure)
        return _Run(result, sampler, zero, seconds, SpecCounters(), None, reason)
    counters = await engine.counters(endpoint) - counters
    counters = completed(counters, engine.server_counts, result.answers)
    return _Run(result, sampler, zero, seconds, counters, await _stages_since(engine, endpoint, stages), "")


async def _stages_since(engine: Engine, endpoint: Endpoint, before: StageTimes | None) -> StageTimes | None:
    after = await engine.stages(endpoint)
    return after - before if after is not None and before is not None else None


async def cause(process: EngineProcess, failure: str) -> str:
    """The engine's death where that is what made something fail, else the failure itself."""
    if not await process.ended(_DEATH_S):
        return failure
    death = process.obituary()
    return death if death in failure else f"{death} (during {failure})"


def _record(
    trial: Trial,
    slot: str,
    identity: Identity,
    warmup: Warmup,
    run: _Run,
    window: tuple[float, float],
    load: LoadRecord,
    reason: str,
    started_at: str,
) -> TrialRecord:
    return TrialRecord(
        digest=trial.digest,
        arm=trial.arm.name,
        concurrency=trial.concurrency,
        block=trial.block,
        state=TrialState.INVALID if reason else TrialState.VALID,
        reason=reason,
        slot=slot,
        identity=asdict(identity),
        counters=asdict(run.counters),
        stages=asdict(run.stages) if run.stages else None,
        warmup_requests=warmup.requests,
        warmup_flat=warmup.flat,
        started_at=started_at,
        duration=run.seconds,
        window=window,
        load=load,
    )
