"""A sweep file with `search:` and blocks that are added as needed, on the simulated engine, from file to decision."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.records import Verdict
from orchestrator.store import RunStore
from tests.orchestrator.cli.test_sweep import PLAIN
from tests.orchestrator.sweeps import fake_sweep, write_sweep


@pytest.mark.slow
@pytest.mark.usefixtures("any_load")
def test_a_search_finds_a_tree_and_the_comparison_stops_when_it_is_clear(
    invoke: Any, tmp_path: Path, models: dict[str, str]
) -> None:
    profile = fake_sweep()["profiles"]["local"] | {"models": models, "price_per_gpu_hour": 2.0}
    sweep = fake_sweep(
        arms=[PLAIN],
        workload={"prompts": {"set": "orchestrate", "count": 36, "seed": 3}, "max_tokens": 12},
        search={
            "budget_gpu_minutes": 0.05,
            "budget": [3, 15],
            "prompts": 4,
            "finalists": 1,
            "options": {"step_ms": 8.0, "tokens_per_step": 3.0},
        },
        blocks={"count": 4, "max": 8, "seed": 5},
        slo={"tpot_ms": 1000},
        profiles={"local": profile},
    )
    runs = tmp_path / "runs"
    result = invoke("sweep", write_sweep(tmp_path, sweep), "--runs", runs)
    assert result.exit_code == 0, result.output
    searched, compared = sorted(runs.iterdir(), key=lambda folder: "-search-" not in folder.name)
    probes = RunStore(searched).probes()
    store = RunStore(compared)
    decision, outputs = store.decision(), store.outputs()
    assert decision is not None
    assert decision.verdict is Verdict.WINNER
    assert decision.arm is not None
    assert decision.arm.startswith("ddtree-budget=")
    assert {f"ddtree-budget={probe.budget}" for probe in probes} >= {decision.arm.partition("-step")[0]}
    assert store.probes() == probes
    looks = store.looks()  # one on a quiet machine: three times as fast is soon clear
    assert [look.blocks for look in looks] == [4, 6, 8][: len(looks)]
    assert (looks[-1].candidate, decision.looks) == (decision.arm, looks)
    assert "look after 4 blocks at 1: " in result.output
    assert outputs is not None
    assert {rate.arm for rate in outputs.rates} == {"autoregressive", decision.arm}
    assert {cell.arm for cell in outputs.positions} == {decision.arm}
    inputs = store.environment()["inputs"]
    assert inputs["prompts"]["count"] == 32
    assert store.trials.records()[0].hardware["cpu"] == store.environment()["cpu"]
    again = invoke("sweep", tmp_path / "sweep.yaml", "--runs", runs, "--resume", "--json")
    assert again.exit_code == 0
    assert json.loads(again.stdout)["arm"] == decision.arm
    assert store.looks() == looks
