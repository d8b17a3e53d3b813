import math
from dataclasses import replace

import pytest

from engines.base import SpecCounters
from orchestrator.promotion.live import Reading, drift, live_acceptance
from orchestrator.promotion.release import Release
from orchestrator.records import Interval


@pytest.fixture
def kept(made: dict[str, Release]) -> Reading:
    """Production as promised."""
    record = made["first"].record
    return Reading(
        release=made["first"],
        seconds=10.0,
        tok_s=100.0,
        acceptance_length=record.promise.acceptance_length,
        probe_acceptance_length=record.smoke_acceptance_length.estimate,
        tpot_ms=record.smoke_tpot_ms.estimate,
        ttft_ms=1.0,
        probe_failures=0,
    )


def test_a_kept_promise_is_no_drift(kept: Reading) -> None:
    assert drift(kept, 0.1) == []
    assert drift(replace(kept, acceptance_length=None), 0.1) == []
    assert drift(replace(kept, tpot_ms=0.01, probe_acceptance_length=9.0), 0.1) == []


def test_a_drafter_that_no_longer_fits_the_traffic(kept: Reading) -> None:
    found = drift(replace(kept, acceptance_length=Interval(estimate=2.0, low=1.9, high=2.1)), 0.1)
    assert len(found) == 1
    assert "acceptance length of the traffic 2.00 (1.90-2.10)" in found[0]
    uncertain = Interval(estimate=2.0, low=1.0, high=3.2)
    assert drift(replace(kept, acceptance_length=uncertain), 0.1) == []


def test_slower_than_promised(kept: Reading) -> None:
    most = kept.release.record.smoke_tpot_ms.high
    assert drift(replace(kept, tpot_ms=1.05 * most), 0.1) == []
    assert "TPOT" in drift(replace(kept, tpot_ms=1.2 * most), 0.1)[0]
    assert drift(replace(kept, tpot_ms=1.2 * most), 0.5) == []
    assert drift(replace(kept, tpot_ms=math.nan, probe_failures=3), 0.1) == ["3 of 8 probes failed"]


def test_live_acceptance_needs_windows_with_traffic() -> None:
    def window(steps: int, accepted: int) -> SpecCounters:
        return SpecCounters(verify_steps=steps, drafted=9 * steps, accepted=accepted, emitted=steps + accepted)

    idle = window(0, 0)
    assert live_acceptance([window(10, 20)] * 4 + [idle] * 9, 0.95) is None
    found = live_acceptance([window(10, 20), window(10, 22), window(10, 18), window(20, 40), window(5, 10), idle], 0.95)
    assert found is not None
    assert found.estimate == pytest.approx(1 + 110 / 55)
    assert found.low < 3 < found.high
    plain = live_acceptance([window(10, 0)] * 6, 0.95)
    assert plain == Interval(estimate=1.0, low=1.0, high=1.0)
