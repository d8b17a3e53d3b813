"""The adapter in a slot, with a scripted server in vLLM's place: good trials, and every fault costing its own trial."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engines.base import Deployment, Method, Ranking
from engines.digests import digest
from orchestrator import process
from orchestrator.measure import Measurement
from orchestrator.records import TrialState
from orchestrator.slots import Slot
from tests.engines.vllm.acting import arm, deployment, distribution, model_folder, software, vllm_trial
from tests.orchestrator.acting import ANY_LOAD, MATCH
from tests.orchestrator.processes import VARIABLE, eventually, marked, new_mark


@dataclass
class Bench:
    """A slot, and deployments of the scripted server that it can start."""

    slot: Slot
    folder: Path
    mark: str

    def deployment(self, script: str = "", **changes: Any) -> Deployment:
        target, drafter = self.folder / "target", self.folder / "drafter"
        environment = {"PYTHONPATH": str(self.folder / "site"), VARIABLE: self.mark, "SCRIPTED_VLLM": script}
        models = {"target": str(target), "target_digest": digest(target)}
        models |= {"drafter": str(drafter), "drafter_digest": digest(drafter)}
        return deployment(**models | {"environment": environment} | changes)

    async def run(self, script: str = "", method: Method = Method.DFLASH, **changes: Any) -> Measurement:
        return await self.slot.run(vllm_trial(self.deployment(script, **changes), method))


@pytest.fixture
def mark() -> Iterator[str]:
    value = new_mark()
    yield value
    assert marked(value) == {}, "an engine was left behind"


@pytest.fixture
async def bench(mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setenv("ORCHESTRATE_HOME", str(tmp_path / "home"))
    distribution(tmp_path / "site")
    model_folder(tmp_path / "target")
    model_folder(tmp_path / "drafter", block_size=8)
    slot = Slot("slot-0", MATCH, ANY_LOAD)
    await slot.open()
    yield Bench(slot, tmp_path, mark)
    await slot.close()


@pytest.mark.parametrize("method", [Method.AUTOREGRESSIVE, Method.NGRAM, Method.DFLASH])
async def test_a_trial_of_each_method_is_valid(bench: Bench, method: Method) -> None:
    measured = await bench.run(method=method)
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


async def test_the_target_s_best_tokens_come_ranked(bench: Bench) -> None:
    found = await bench.slot.rankings(arm(Method.AUTOREGRESSIVE), bench.deployment(), [[1, 2, 3]])
    assert found == [Ranking(found[0].token_ids, (-0.25, -1.5))]
    assert found[0].regret(found[0].token_ids[1]) == 1.25


@pytest.mark.parametrize(
    ("script", "changes", "reason"),
    [
        ("memory", {}, "ValueError: Available memory on node 0 (14.3/17.21 GiB) on kv cache allocation is less than"),
        ("", {"arguments": ("--flag-of-tomorrow",)}, "error: unrecognized arguments: --flag-of-tomorrow"),
        ("never_ready", {"ready_timeout_s": 1.5}, "engine vllm was not ready after 1.5 s"),
        ("other_dtype", {}, "the server says dtype = 'bfloat16', the arm says 'float32'"),
        ("", {"target_digest": "another"}, "the server says target_digest = "),
        ("", {"drafter_digest": "another"}, "the server says drafter_digest = "),
        ("", {"software": "vllm 0.33.0, torch 2.14.0"}, "vllm 0.33.0 cannot run on device cpu"),
        ("dies", {}, "EngineDeadError: EngineCore died"),
        ("cut", {}, "connection lost"),
        ("no_usage", {}, "the server sent no usage"),
        ("stream_error", {}, "the server broke off: EngineCore encountered an issue"),
    ],
)
async def test_every_fault_is_one_line_and_frees_the_slot(
    bench: Bench, script: str, changes: dict[str, Any], reason: str
) -> None:
    measured = await bench.run(script, **changes)
    assert measured.record.state is TrialState.INVALID
    assert reason in measured.record.reason
    assert "\n" not in measured.record.reason
    assert eventually(lambda: marked(bench.mark) == {}), "the slot is free"
    assert (await bench.run()).record.state is TrialState.VALID, "and the sweep goes on"


async def test_a_port_that_is_taken_is_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(process, "free_port", lambda: taken.getsockname()[1])
        measured = await bench.run()
    assert measured.record.state is TrialState.INVALID
    assert "Address already in use" in measured.record.reason


async def test_without_dev_mode_nothing_is_believed(bench: Bench) -> None:
    deployed = bench.deployment()
    closed = bench.deployment(environment=dict(deployed.environment) | {"VLLM_SERVER_DEV_MODE": "0"})
    measured = await bench.slot.run(vllm_trial(closed, Method.NGRAM))
    assert measured.record.state is TrialState.INVALID
    assert "/server_info?config_format=json: HTTP 404" in measured.record.reason
