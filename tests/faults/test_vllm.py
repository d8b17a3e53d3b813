"""A whole sweep of arms of engine vllm that fail in every way, with a scripted server in vLLM's place."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from engines.digests import digest
from orchestrator import driver
from orchestrator.cluster import Choice, Cluster
from orchestrator.driver import run_sweep
from orchestrator.plan import make_plan
from orchestrator.prompts import load_prompts
from orchestrator.records import TrialState
from orchestrator.spec import SweepSpec
from tests.engines.scripted import model_folder
from tests.engines.vllm.acting import deployment, distribution
from tests.faults.conftest import new_store
from tests.orchestrator.acting import ANY_LOAD, MATCH
from tests.orchestrator.processes import VARIABLE, eventually, marked
from tests.orchestrator.sweeps import fake_sweep

GOOD = "good"
REASONS = {
    "dies_loading": "exit code 1: (EngineCore pid=71) ERROR 11-30 01:17:25 [core.py:1510] safetensors_rust.Safetensor",
    "port": "exit code 1: OSError: [Errno 98] Address already in use",
    "memory": "ValueError: Available memory on node 0 (14.3/17.21 GiB) on kv cache allocation is less than",
    "flag": "exit code 2: api_server.py: error: ",
    "never_ready": "engine vllm was not ready after 8 s",
    "dies@1": "EngineDeadError: EngineCore died",
    "cut@1": "connection lost",
    "no_usage@1": "the server sent no usage",
    "stream_error": "warm-up request ",
    "stream_error@1": "the server broke off: EngineCore encountered an issue",
}
"""What of the reason must be there. One good answer is the warm-up's, so `@1` is a fault of the measurement."""


def ngram(name: str, width: int) -> dict[str, Any]:
    """An arm that the server knows by its draft tokens."""
    named = name.replace("@", "=")  # arms have no @ in their names
    return {"method": "ngram", "engine": "vllm", "name": named, "options": {"draft_tokens": width}}


@pytest.mark.slow
def test_every_fault_of_vllm_makes_its_own_trials_invalid_and_the_sweep_goes_on(
    cluster: Cluster, tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "ATTEMPTS", 1)
    widths = {name: width for width, name in enumerate(REASONS, 2)}
    script = " ".join(f"{width}={name}" for name, width in widths.items())
    arms: list[dict[str, Any]] = [{"method": "autoregressive", "engine": "vllm"}, ngram(GOOD, 32)]
    arms += [ngram(name, width) for name, width in widths.items()]
    workload = {"prompts": {"count": 4}, "max_tokens": 12, "request_timeout_s": 20}
    spec = SweepSpec.model_validate(
        fake_sweep(arms=arms, workload=workload, warmup={"min_requests": 1, "max_requests": 1})
    )
    target = model_folder(tmp_path / "target")
    environment = {"PYTHONPATH": str(distribution(tmp_path / "site")), "SCRIPTED_VLLM": script, VARIABLE: mark}
    deployed = deployment(
        target=str(target),
        target_digest=digest(target),
        drafter=None,
        drafter_digest=None,
        environment=environment,
        ready_timeout_s=8.0,
    )
    plan = make_plan(spec, "local", {"vllm": deployed}, load_prompts(spec.workload.prompts))
    store, output = new_store(tmp_path, plan), io.StringIO()
    run_sweep(plan, store, Choice("local", 2, MATCH, ""), Console(file=output, width=300), ANY_LOAD)
    records = {record.arm.replace("=", "@"): record for record in store.trials.records()}
    assert len(store.trials.records()) == 2 * (2 + len(REASONS))
    for name, reason in REASONS.items():
        record = records[name]
        assert record.state is TrialState.INVALID, (name, record.reason)
        assert reason in record.reason, name
        assert "\n" not in record.reason
        assert (store.trials.folder / record.digest / "engine.log").read_bytes()
    for name in ("autoregressive", GOOD):
        assert records[name].state is TrialState.VALID, records[name].reason
    assert eventually(lambda: marked(mark) == {}), marked(mark)
