"""Times and step counts of single requests."""

from __future__ import annotations

import pandas as pd

from orchestrator.spec import SloSpec


def measure(requests: pd.DataFrame) -> pd.DataFrame:
    """`requests` with `ok`, seconds `lag`, `ttft`, `e2e`, `decode`, `tpot`, `step`, and `decode_tokens` added.

    Everything counts from the *scheduled* time, so that a queue inside the client is seen. TPOT leaves the tokens of
    the first chunk out of the denominator, (last - first) / (N - m1), and is NaN when nothing came after that chunk.
    `step` is seconds a verify step; where the engine tells no steps, seconds a token. All NaN for a failed request.
    """
    ok = (requests["error"] == "") & requests["last"].notna() & (requests["output_tokens"] > 0)
    decode = (requests["last"] - requests["first"]).where(ok)
    tokens = (requests["output_tokens"] - requests["first_chunk_tokens"]).where(ok)
    several = tokens > 0
    steps = requests["verify_steps"].where(requests["verify_steps"] > 0, tokens)
    return requests.assign(
        ok=ok,
        lag=requests["sent"] - requests["scheduled"],
        ttft=(requests["first"] - requests["scheduled"]).where(ok),
        e2e=(requests["last"] - requests["scheduled"]).where(ok),
        decode=decode.where(several),
        decode_tokens=tokens.where(several),
        tpot=(decode / tokens).where(several),
        step=(decode / steps).where(several),
    )


def within_slo(measured: pd.DataFrame, slo: SloSpec) -> pd.Series[bool]:
    """Whether each request met every limit. A failure is a miss; a request of one chunk has no TPOT to miss."""
    met = measured["ok"].astype(bool)
    if slo.ttft_ms is not None:
        met &= measured["ttft"] * 1e3 <= slo.ttft_ms
    if slo.tpot_ms is not None:
        met &= measured["tpot"].isna() | (measured["tpot"] * 1e3 <= slo.tpot_ms)
    if slo.e2e_ms is not None:
        met &= measured["e2e"] * 1e3 <= slo.e2e_ms
    return met
