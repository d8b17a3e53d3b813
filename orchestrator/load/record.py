"""What a trial's record says about its load."""

from __future__ import annotations

import pandas as pd

from orchestrator.load.client import LoadClient, LoadResult
from orchestrator.metrics import tokens_within
from orchestrator.plan import Trial
from orchestrator.records import LoadRecord, PhaseRecord


def load_record(
    trial: Trial, client: LoadClient, result: LoadResult, requests: pd.DataFrame, window: tuple[float, float]
) -> LoadRecord:
    """`requests` are the trial's rows, `window` is its window."""
    ramp, drain = phases(requests, window)
    return LoadRecord(
        pattern=trial.workload.arrivals.pattern,
        cores=client.worker.cores,
        own_core=client.placing.own,
        startup_s=client.worker.startup_s,
        cpu_s=result.cpu_s,
        lag_ms_p99=None if result.lag_s is None else 1e3 * result.lag_s,
        coalesced_share=result.coalesced_share,
        ramp=ramp,
        drain=drain,
    )


def phases(requests: pd.DataFrame, window: tuple[float, float]) -> tuple[PhaseRecord, PhaseRecord]:
    """Ramp and drain: what lies before and after the window, from the first request to the last token."""
    begin, end = requests["scheduled"].min(), requests["last"].max()
    begin, end = (window[0] if pd.isna(begin) else float(begin)), (window[1] if pd.isna(end) else float(end))
    return _phase(requests, (begin, window[0])), _phase(requests, (window[1], end))


def _phase(requests: pd.DataFrame, span: tuple[float, float]) -> PhaseRecord:
    return PhaseRecord(seconds=max(0.0, span[1] - span[0]), tokens=tokens_within(requests, span))
