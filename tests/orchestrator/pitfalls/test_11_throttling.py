"""Heat, power and neighbours: 300 W ran at 1031 MHz, 600 W at 1948; a shared GPU moved +16 % to +21 % (CAST)."""

import os
import subprocess
import time
from typing import Any

import pytest

from orchestrator.disturbance import gpu_disturbance, others
from orchestrator.hardware import cards
from orchestrator.telemetry import Sampler
from orchestrator.validity import Limits
from tests.orchestrator.scripted_nvml import UUID, Moment, ScriptedNvml
from tests.orchestrator.test_rounds import PLAN

SPREAD = Limits().clock_spread


def sample(**changes: Any) -> dict[str, float]:
    quiet = {"gpu_sm_clock_mhz": 1980, "gpu_power_w": 500.0, "gpu_temperature_c": 60}
    return quiet | {"gpu_throttle_reasons": 0, "gpu_other_processes": 0} | changes


def disturbed(*changed: dict[str, float]) -> str:
    return gpu_disturbance([*[sample()] * 20, *changed], SPREAD)


def test_a_quiet_card_counts_and_so_does_none() -> None:
    assert disturbed() == ""
    assert gpu_disturbance([{"time": 0.4, "cpu_percent": 90.0}], SPREAD) == ""


@pytest.mark.parametrize(
    ("reasons", "name"),
    [
        (0x08, "hardware slowdown"),
        (0x20, "software thermal slowdown"),
        (0x40, "hardware thermal slowdown"),
        (0x80, "power brake"),
    ],
)
def test_one_throttled_sample_refuses_the_trial(reasons: int, name: str) -> None:
    found = disturbed(sample(gpu_throttle_reasons=reasons | 0x04, gpu_temperature_c=91))
    assert found == f"the GPU was throttled in 1 of 21 samples: {name} (up to 91 C)"


def test_a_power_cap_counts_only_where_the_clock_moves_with_it() -> None:
    capped = [sample(gpu_throttle_reasons=0x04, gpu_sm_clock_mhz=1700) for _ in range(20)]
    assert gpu_disturbance(capped, SPREAD) == ""
    assert gpu_disturbance(capped + [sample()] * 20, SPREAD) == (
        "the GPU's clock moved between 1700 and 1980 MHz, allowed 10 %"
    )


def test_an_idle_clock_is_no_throttling() -> None:
    assert disturbed(*[sample(gpu_throttle_reasons=0x01, gpu_sm_clock_mhz=345)] * 20) == ""


def test_a_neighbour_refuses_the_trial() -> None:
    assert disturbed(sample(gpu_other_processes=1)) == "another process was on the GPU in 1 of 21 samples"


def test_who_is_a_neighbour() -> None:
    """One that this machine knows and that is not the engine; of the host's numbers in a container, what came later."""
    assert others({10, 11}, {10, 11, 12}, {10, 11}, 0) == 0
    assert others({10, 99}, {10}, {10, 99}, 0) == 1
    assert others({70001}, {10}, set(), hidden_before=1) == 0
    assert others({70001, 70002}, {10}, set(), hidden_before=1) == 1


def test_samples_come_from_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card that throttles and has a guest: this test's own process, which is not the engine's."""
    ScriptedNvml(Moment(reasons=0x20, celsius=92, clock=1031, processes=[os.getpid()])).install(monkeypatch)
    with Sampler(1 << 22, time.perf_counter(), [UUID]) as sampler:
        time.sleep(0.1)
    (row,) = sampler.rows
    assert (row["gpu_sm_clock_mhz"], row["gpu_temperature_c"], row["gpu_power_w"]) == (1031, 92, 500.0)
    assert row["gpu_other_processes"] == 1
    assert "another process" in gpu_disturbance(sampler.rows, SPREAD)
    own = [row | {"gpu_other_processes": 0.0}]
    assert "software thermal slowdown (up to 92 C)" in gpu_disturbance(own, SPREAD)


def test_an_engine_that_the_slot_keeps_up_is_no_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several stay on the card between their trials; only the measured one has anything to do."""
    with subprocess.Popen(["sleep", "300"]) as measured, subprocess.Popen(["sleep", "300"]) as kept:
        ScriptedNvml(Moment(processes=[measured.pid, kept.pid])).install(monkeypatch)
        try:
            with Sampler(measured.pid, time.perf_counter(), [UUID]) as sampler:
                time.sleep(0.1)
        finally:
            measured.kill()
            kept.kill()
    assert {row["gpu_other_processes"] for row in sampler.rows} == {0}


def test_limits_and_versions_of_the_card_are_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    ScriptedNvml(unsupported=frozenset({"nvmlDeviceGetBoardPartNumber", "nvmlDeviceGetEccMode"})).install(monkeypatch)
    (card,) = cards()
    assert (card["vbios"], card["driver"], card["pci_device"]) == ("96.00.SIM", "570.1", "233510de")
    assert (card["power_limit_w"], card["power_default_w"], card["max_sm_clock_mhz"]) == (700.0, 700.0, 1980)
    assert (card["pcie_generation"], card["pcie_width"]) == (5, 16)
    assert (card["sku"], card["ecc"]) == (None, None)
    assert cards(["GPU-another"]) == []


def test_arms_meet_heat_in_turn() -> None:
    """No arm always runs first, on a card at rest, or on the card that the one before it heated."""
    orders = [[trial.arm.name for trial in unit.trials] for unit in PLAN.units]
    assert len({names[0] for names in orders[: len(orders[0])]}) == min(len(orders), len(orders[0]))
