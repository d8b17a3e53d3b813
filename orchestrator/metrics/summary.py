"""One arm at one workload point, over all its valid trials."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from engines.base import Arm, StageTimes
from orchestrator.metrics.pauses import pause
from orchestrator.metrics.percentiles import indicative
from orchestrator.metrics.requests import measure, within_slo
from orchestrator.metrics.shared import noise_of, widened
from orchestrator.metrics.window import tokens_within, window_of
from orchestrator.records import ArmSummary, Interval, TrialRecord, TrialState
from orchestrator.spec import SloSpec
from orchestrator.statistics import Bootstrap, TrialNoise, mean_interval, ratio_interval

STAGES = ("draft", "build", "verify", "commit", "host")
"""The stages of a decode step, in their order. Prefill is no part of one."""

_MIN_REQUESTS = 2
"""Below two requests with a TPOT there is nothing to give an interval from, and no summary."""

_Windowed = tuple[pd.DataFrame, tuple[float, float]]
"""A trial's requests and its steady window."""

MAX_IDENTITY_ERROR = 0.05
"""Above this the stage times do not explain the TPOT measured."""


def summarise(
    requests: pd.DataFrame, trials: Sequence[TrialRecord], arms: Sequence[Arm], slo: SloSpec, bootstrap: Bootstrap
) -> list[ArmSummary]:
    """Rows in the order of `arms`, then concurrency. An arm with under two measurable requests there has no row.

    `requests` are the valid trials' (Trials.requests), `trials` their records. Intervals cover the draw of prompts, and
    those of times and rates what the requests of one trial share.
    """
    if requests.empty:
        return []
    measured = measure(requests)
    noises = {concurrency: noise_of(point, arms) for concurrency, point in measured.groupby("concurrency")}
    summaries = []
    for arm in arms:
        own = measured[measured["arm"] == arm.name]
        for concurrency, point in own.groupby("concurrency", sort=True):
            if point["tpot"].notna().sum() < _MIN_REQUESTS:
                continue
            key = (arm.name, concurrency, TrialState.VALID)
            records = [t for t in trials if (t.arm, t.concurrency, t.state) == key]
            noise = noises[concurrency]
            summaries.append(_summary(arm, int(str(concurrency)), point, records, slo, bootstrap, noise))
    return summaries


def caveats(summary: ArmSummary) -> list[str]:
    """What to know before believing the row, a line each; empty for nothing."""
    lines = []
    if summary.unsettled_trials:
        share = f"{summary.unsettled_trials} of {summary.trials} trials"
        lines.append(f"in {share} the speed was not flat yet when the warm-up ended")
    if summary.longest_pause:
        share = f"{summary.paused_trials} of {summary.trials} trials"
        most = "up to " if summary.paused_trials > 1 else ""
        seconds = f"{most}{summary.longest_pause.seconds:.2f} s of {summary.longest_pause.window:.2f} s"
        lines.append(f"in {share} nothing arrived for {seconds} while requests were in flight")
    if summary.identity_error is not None and summary.identity_error > MAX_IDENTITY_ERROR:
        error, limit = f"{100 * summary.identity_error:.1f} %", f"{100 * MAX_IDENTITY_ERROR:g} %"
        lines.append(f"step time over acceptance length is {error} off the TPOT measured, more than {limit}")
    return lines


def by_task(requests: pd.DataFrame) -> pd.DataFrame:
    """Columns arm, concurrency, task, requests, tokens, tpot_ms (pooled), acceptance_length; for the report."""
    columns = ["arm", "concurrency", "task"]
    if requests.empty:
        return pd.DataFrame(columns=[*columns, "requests", "tokens", "tpot_ms", "acceptance_length"])
    measured = measure(requests)
    groups = measured[measured["ok"]].groupby(columns, sort=True)
    sums = groups[["output_tokens", "decode", "decode_tokens", "accepted", "verify_steps"]].sum()
    return pd.DataFrame(
        {
            "requests": groups.size(),
            "tokens": sums["output_tokens"],
            "tpot_ms": 1e3 * sums["decode"] / sums["decode_tokens"],
            "acceptance_length": 1 + sums["accepted"] / sums["verify_steps"],
        }
    ).reset_index()


def _summary(
    arm: Arm,
    concurrency: int,
    point: pd.DataFrame,
    records: Sequence[TrialRecord],
    slo: SloSpec,
    bootstrap: Bootstrap,
    noise: TrialNoise | None,
) -> ArmSummary:
    done = point[point["ok"]]
    timed = point[point["tpot"].notna()]
    stream = bootstrap.stream("summary", arm.name, str(concurrency))
    steps, accepted, drafted = (int(done[name].sum()) for name in ("verify_steps", "accepted", "drafted"))
    step_ms = _step_ms(_stages(records))
    acceptance = _acceptance_length(done, bootstrap, stream)
    windows = _windows(point, concurrency, records)
    pauses = [found for trial, window in windows if (found := pause(trial, window))]
    output_tok_s = _output_tok_s(point, windows, bootstrap, stream)
    tpot_ms = mean_interval(1e3 * timed["tpot"].to_numpy(dtype=float), bootstrap, stream)
    return ArmSummary(
        arm=arm.name,
        engine=arm.engine,
        method=arm.method.value,
        budget=arm.budget,
        concurrency=concurrency,
        trials=point["trial"].nunique(),
        unsettled_trials=sum(not record.warmup_flat for record in records),
        paused_trials=len(pauses),
        longest_pause=max(pauses, key=lambda found: found.seconds, default=None),
        requests=len(point),
        errors=len(point) - len(done),
        tokens=int(done["output_tokens"].sum()),
        output_tok_s=widened(output_tok_s, done["block"], noise, bootstrap.confidence),
        tpot_ms=widened(tpot_ms, timed["block"], noise, bootstrap.confidence),
        ttft_ms_p50=_percentile_ms(done["ttft"], 50),
        ttft_ms_p90=_percentile_ms(done["ttft"], 90),
        tpot_ms_p50=_percentile_ms(timed["tpot"], 50),
        tpot_ms_p90=_percentile_ms(timed["tpot"], 90),
        e2e_ms_p50=_percentile_ms(done["e2e"], 50),
        e2e_ms_p90=_percentile_ms(done["e2e"], 90),
        ttft_ms_p99=_percentile_ms(done["ttft"], 99),
        tpot_ms_p99=_percentile_ms(timed["tpot"], 99),
        e2e_ms_p99=_percentile_ms(done["e2e"], 99),
        indicative=indicative(len(timed)),
        acceptance_length=acceptance,
        acceptance_length_macro=_acceptance_length_macro(done),
        acceptance_by_depth=_acceptance_by_depth(done["accepted_by_depth"], steps),
        budget_efficiency=accepted / drafted if drafted else None,
        goodput_rps=_goodput(windows, slo),
        truncated_share=float((done["finish_reason"] == "length").mean()),
        step_ms=step_ms,
        identity_error=_identity_error(timed, step_ms, acceptance.estimate),
    )


def _acceptance_length(done: pd.DataFrame, bootstrap: Bootstrap, stream: np.random.Generator) -> Interval:
    """Pooled: 1 + accepted / verify steps, the bonus token counted and the prefill's not. 1 for plain decoding."""
    steps = done["verify_steps"].to_numpy(dtype=float)
    if not steps.any():
        return Interval(estimate=1.0, low=1.0, high=1.0)
    extra = ratio_interval(done["accepted"].to_numpy(dtype=float), steps, bootstrap, stream)
    return Interval(estimate=1 + extra.estimate, low=1 + extra.low, high=1 + extra.high)


def _acceptance_length_macro(done: pd.DataFrame) -> float:
    """Mean over requests, only to compare with papers that average so."""
    stepped = done[done["verify_steps"] > 0]
    return float((1 + stepped["accepted"] / stepped["verify_steps"]).mean()) if len(stepped) else 1.0


def _acceptance_by_depth(depths: Iterable[Sequence[int]], steps: int) -> list[float]:
    """P(a step accepts at least k draft tokens) for k = 1, 2, ... They sum to the acceptance length less 1."""
    counts = [np.asarray(row, dtype=float) for row in depths]
    total = np.zeros(max((len(row) for row in counts), default=0))
    for row in counts:
        total[: len(row)] += row
    return [float(value) for value in total / steps] if steps else []


def _output_tok_s(
    point: pd.DataFrame, windows: Sequence[_Windowed], bootstrap: Bootstrap, stream: np.random.Generator
) -> Interval:
    """Tokens inside the steady windows over their seconds; the interval is that of tokens per second of a slot."""
    rate = sum(tokens_within(trial, window) for trial, window in windows) / _seconds(windows)
    done = point[point["ok"]]
    busy = (done["last"] - done["sent"]).to_numpy(dtype=float)
    slot = ratio_interval(done["output_tokens"].to_numpy(dtype=float), busy, bootstrap, stream)
    return Interval(estimate=rate, low=rate * slot.low / slot.estimate, high=rate * slot.high / slot.estimate)


def _goodput(windows: Sequence[_Windowed], slo: SloSpec) -> float | None:
    """Requests a second that finished inside the steady windows and met every limit. None without a limit."""
    if slo == SloSpec():
        return None
    good = sum(int((within_slo(trial, slo) & trial["last"].between(*window)).sum()) for trial, window in windows)
    return good / _seconds(windows)


def _windows(point: pd.DataFrame, concurrency: int, records: Sequence[TrialRecord]) -> list[_Windowed]:
    """Each trial with its steady window; a trial in which nothing finished has none."""
    told = {record.digest: record for record in records}
    trials = [(str(digest), trial) for digest, trial in point.groupby("trial") if trial["ok"].any()]
    return [(trial, window_of(told.get(digest), trial, concurrency)) for digest, trial in trials]


def _seconds(windows: Sequence[_Windowed]) -> float:
    return sum(end - start for _, (start, end) in windows)


def _percentile_ms(seconds: pd.Series[float], percent: float) -> float:
    return float(np.percentile(1e3 * seconds.to_numpy(dtype=float), percent))


def _stages(records: Sequence[TrialRecord]) -> StageTimes | None:
    """Stage times of valid trials together. None unless every one of them has some."""
    told = [record.stages for record in records]
    if not told or any(stages is None for stages in told):
        return None
    names = StageTimes.__dataclass_fields__
    sums = {name: sum(stages[name] for stages in told if stages is not None) for name in names}
    return StageTimes(steps=int(sums.pop("steps")), **sums)


def _step_ms(stages: StageTimes | None) -> dict[str, float]:
    if stages is None or stages.steps == 0:
        return {}
    return {name: 1e3 * float(getattr(stages, name)) / stages.steps for name in STAGES}


def _identity_error(timed: pd.DataFrame, step_ms: dict[str, float], acceptance_length: float) -> float | None:
    """|measured / predicted - 1| of the pooled TPOT against step time / acceptance length."""
    if not step_ms:
        return None
    measured = 1e3 * float(timed["decode"].sum() / timed["decode_tokens"].sum())
    return abs(measured * acceptance_length / sum(step_ms.values()) - 1)
