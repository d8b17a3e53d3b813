"""The adapter in a slot, with a scripted server in vLLM's place: good trials, and every fault costing its own trial."""

from __future__ import annotations

from typing import Any

import pytest

from engines.base import Method
from orchestrator.records import TrialState
from tests.engines.scripted import Bench, Scripted, scripted_trial
from tests.engines.vllm.acting import VLLM, arm, software


@pytest.fixture
def scripted() -> Scripted:
    return VLLM


@pytest.mark.parametrize("method", [Method.AUTOREGRESSIVE, Method.NGRAM, Method.DFLASH])
async def test_a_trial_of_each_method_is_valid(bench: Bench, method: Method) -> None:
    measured = await bench.run(subject=arm(method))
    record = measured.record
    assert (record.state, record.reason) == (TrialState.VALID, "")
    assert record.identity["method"] == method
    assert record.identity["version"] == "0.32.0"
    assert record.identity["settings"]["prefix_cache"] is False
    assert "not_proved" in record.identity["settings"]
    assert (record.identity["drafter_digest"] is not None) == (method is Method.DFLASH)
    assert ("defect" in record.identity["settings"]) == (method is Method.DFLASH)
    tokens = sum(measured.requests["output_tokens"])
    assert measured.counters.emitted == tokens - len(measured.requests)
    expected = 1.0 if method is Method.AUTOREGRESSIVE else 3.0
    assert measured.counters.acceptance_length == expected
    assert measured.requests["verify_steps"].sum() == (measured.counters.verify_steps if expected > 1 else 0)
    assert all(len(ids) for ids in measured.requests["prompt_token_ids"])


@pytest.mark.parametrize("version", ["0.26.0", "0.28.0", "0.29.0", "0.33.0"])
async def test_old_and_new_versions_are_measured(bench: Bench, version: str) -> None:
    deployed = bench.deployment(software=software(version))
    environment = dict(deployed.environment) | {"SCRIPTED_VERSION": version}
    measured = await bench.run(software=deployed.software, environment=environment)
    assert (measured.record.state, measured.record.reason) == (TrialState.VALID, "")
    assert measured.record.identity["version"] == version
    assert measured.counters.acceptance_length == 3.0
    told = measured.counters.verify_steps if version >= "0.29" else 0
    assert measured.requests["verify_steps"].sum() == told, "requests tell their own counters since 0.29"


@pytest.mark.parametrize(
    ("script", "changes", "reason"),
    [
        ("memory", {}, "ValueError: Available memory on node 0 (14.3/17.21 GiB) on kv cache allocation is less than"),
        ("other_dtype", {}, "the server says dtype = 'bfloat16', the arm says 'float32'"),
        ("", {"software": "vllm 0.33.0, torch 2.14.0"}, "vllm 0.33.0 cannot run on device cpu"),
        ("dies", {}, "EngineDeadError: EngineCore died"),
        ("no_usage", {}, "the server sent no usage"),
        ("stream_error", {}, "the server broke off: EngineCore encountered an issue"),
    ],
)
async def test_every_fault_is_one_line_and_frees_the_slot(
    bench: Bench, script: str, changes: dict[str, Any], reason: str
) -> None:
    measured = await bench.run(script, **changes)
    bench.costs_its_own_trial(measured, reason)
    assert (await bench.run()).record.state is TrialState.VALID, "and the sweep goes on"


async def test_without_dev_mode_nothing_is_believed(bench: Bench) -> None:
    deployed = bench.deployment()
    closed = bench.deployment(environment=dict(deployed.environment) | {"VLLM_SERVER_DEV_MODE": "0"})
    measured = await bench.slot.run(scripted_trial(closed, arm(Method.NGRAM)))
    assert measured.record.state is TrialState.INVALID
    assert "/server_info?config_format=json: HTTP 404" in measured.record.reason
