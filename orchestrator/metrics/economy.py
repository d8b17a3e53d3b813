"""What an arm gives to a user, to a GPU, for the money and for the energy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from orchestrator.metrics.requests import measure, within_slo
from orchestrator.metrics.window import tokens_within, window_of
from orchestrator.outputs import Rate
from orchestrator.records import ArmSummary, Interval, TrialRecord, TrialState
from orchestrator.spec import SloSpec

Window = tuple[float, float]


@dataclass(frozen=True)
class Terms:
    """What turns speeds into rates: GPUs a slot, USD a GPU and hour, limits."""

    gpus: int
    price_per_gpu_hour: float | None
    slo: SloSpec


def rates(
    summaries: Sequence[ArmSummary],
    trials: Sequence[TrialRecord],
    requests: pd.DataFrame,
    telemetry: Callable[[str], pd.DataFrame],
    terms: Terms,
) -> list[Rate]:
    """A rate a summary, in their order. `requests` are the valid trials'; `telemetry` gives a trial's samples."""
    if requests.empty:
        return []
    measured = measure(requests)
    records = {trial.digest: trial for trial in trials if trial.state is TrialState.VALID}
    made = [_rate(summary, _runs(summary, records, measured), telemetry, terms) for summary in summaries]
    return mark_front(made)


def mark_front(found: Sequence[Rate]) -> list[Rate]:
    """With `on_front` set where no other rate has both speeds at least as high and one of them higher."""
    speeds = [(rate.tok_s_user.estimate, rate.tok_s_gpu.estimate) for rate in found]

    def beaten(user: float, gpu: float) -> bool:
        return any(u >= user and g >= gpu and (u, g) != (user, gpu) for u, g in speeds)

    return [rate.model_copy(update={"on_front": not beaten(*own)}) for rate, own in zip(found, speeds, strict=True)]


def usd_per_million(terms: Terms, goodput_tok_s: float | None) -> float | None:
    """1e6 output tokens in USD: the GPUs' hours that they take at this rate. None without a price, GPUs or goodput."""
    if terms.price_per_gpu_hour is None or not terms.gpus or not goodput_tok_s:
        return None
    return 1e6 * terms.price_per_gpu_hour * terms.gpus / (3600 * goodput_tok_s)


def energy(samples: pd.DataFrame, window: Window) -> float | None:
    """Joules of board power over the window, by the trapezoid rule; the power at its edges is interpolated."""
    if "gpu_power_w" not in samples or len(samples) < 2:
        return None
    at, watts = samples["time"].to_numpy(dtype=float), samples["gpu_power_w"].to_numpy(dtype=float)
    inside = (at > window[0]) & (at < window[1])
    times = np.concatenate([[window[0]], at[inside], [window[1]]])
    return float(np.trapezoid(np.interp(times, at, watts), times))


def _runs(
    summary: ArmSummary, records: dict[str, TrialRecord], measured: pd.DataFrame
) -> list[tuple[str, pd.DataFrame, Window]]:
    own = measured[(measured["arm"] == summary.arm) & (measured["concurrency"] == summary.concurrency)]
    runs = [(str(digest), trial) for digest, trial in own.groupby("trial") if trial["ok"].any()]
    return [(digest, trial, window_of(records.get(digest), trial, summary.concurrency)) for digest, trial in runs]


def _rate(
    summary: ArmSummary,
    runs: Sequence[tuple[str, pd.DataFrame, Window]],
    telemetry: Callable[[str], pd.DataFrame],
    terms: Terms,
) -> Rate:
    gpus = max(1, terms.gpus)
    speed, tpot = summary.output_tok_s, summary.tpot_ms
    goodput = _goodput_tok_s(runs, terms.slo)
    return Rate(
        arm=summary.arm,
        concurrency=summary.concurrency,
        gpus=terms.gpus,
        tok_s_user=Interval(estimate=1e3 / tpot.estimate, low=1e3 / tpot.high, high=1e3 / tpot.low),
        tok_s_gpu=Interval(estimate=speed.estimate / gpus, low=speed.low / gpus, high=speed.high / gpus),
        on_front=False,
        goodput_rps=summary.goodput_rps,
        goodput_tok_s=goodput,
        usd_per_million=usd_per_million(terms, goodput),
        joules_per_token=_joules_per_token(runs, telemetry),
    )


def _goodput_tok_s(runs: Sequence[tuple[str, pd.DataFrame, Window]], slo: SloSpec) -> float | None:
    """Output tokens a second of the requests that finished in the windows and met every limit; None without one."""
    if slo == SloSpec() or not runs:
        return None
    good = [trial[within_slo(trial, slo) & trial["last"].between(*window)] for _, trial, window in runs]
    return float(sum(trial["output_tokens"].sum() for trial in good) / sum(end - start for _, _, (start, end) in runs))


def _joules_per_token(
    runs: Sequence[tuple[str, pd.DataFrame, Window]], telemetry: Callable[[str], pd.DataFrame]
) -> float | None:
    """Over all trials together; None unless each of them has power readings."""
    joules = [energy(telemetry(digest), window) for digest, _, window in runs]
    tokens = sum(tokens_within(trial, window) for _, trial, window in runs)
    if not tokens or any(value is None for value in joules):
        return None
    return sum(value for value in joules if value is not None) / tokens
