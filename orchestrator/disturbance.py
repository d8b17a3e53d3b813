"""What happened to the GPUs while a trial ran, judged from the samples of telemetry.parquet. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

THROTTLING = {
    0x08: "hardware slowdown",
    0x10: "held back by a synchronised GPU",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""NVML's clock event reasons (nvml.h) that make a sample another card's. A software power cap (0x04) is not among them:
it is how a card under load behaves at its power limit, which is part of what was measured; it counts where the clocks
move with it."""

_IDLE = 0x01
_FEWEST = 4


def gpu_disturbance(rows: Sequence[Mapping[str, float]], clock_spread: float) -> str:
    """Why the GPUs' part of a trial does not count, in one line; empty where nothing did or there is no GPU.

    `clock_spread`: how far the 90th percentile of the SM clock may lie above the 10th, relative.
    """
    samples = [row for row in rows if "gpu_sm_clock_mhz" in row]
    return _shared(samples) or _throttled(samples) or _unsteady(samples, clock_spread)


def others(processes: Collection[int], ours: Collection[int], alive: Collection[int], hidden_before: int) -> int:
    """How many processes on a GPU are not the slot's engines.

    `alive`: those of `processes` that this machine knows. In a container the driver may name processes by numbers of
    the host; they cannot be told from the engines', so only what comes on top of `hidden_before` counts.
    """
    strangers = set(alive) - set(ours)
    return len(strangers) + max(0, hidden(processes, alive) - hidden_before)


def hidden(processes: Collection[int], alive: Collection[int]) -> int:
    return len(set(processes) - set(alive))


def _shared(samples: Sequence[Mapping[str, float]]) -> str:
    count = sum(row["gpu_other_processes"] > 0 for row in samples)
    return f"another process was on the GPU in {count} of {len(samples)} samples" if count else ""


def _throttled(samples: Sequence[Mapping[str, float]]) -> str:
    reasons = 0
    for row in samples:
        reasons |= int(row["gpu_throttle_reasons"])
    names = [name for bit, name in THROTTLING.items() if reasons & bit]
    if not names:
        return ""
    count = sum(bool(int(row["gpu_throttle_reasons"]) & sum(THROTTLING)) for row in samples)
    hottest = max(row["gpu_temperature_c"] for row in samples)
    return f"the GPU was throttled in {count} of {len(samples)} samples: {', '.join(names)} (up to {hottest:g} C)"


def _unsteady(samples: Sequence[Mapping[str, float]], limit: float) -> str:
    clocks = [row["gpu_sm_clock_mhz"] for row in samples if not int(row["gpu_throttle_reasons"]) & _IDLE]
    if len(clocks) < _FEWEST:
        return ""
    low, high = np.percentile(clocks, [10, 90])
    if high <= low * (1 + limit):
        return ""
    return f"the GPU's clock moved between {low:.0f} and {high:.0f} MHz, allowed {100 * limit:g} %"
