"""The adapter in a slot, with a scripted server in SGLang's place: good trials, and every fault costs its own trial."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engines.base import Arm, Deployment, EngineError, Method, Ranking
from engines.digests import digest
from orchestrator import process
from orchestrator.measure import Measurement
from orchestrator.records import TrialState
from orchestrator.slots import Slot
from tests.engines.sglang.acting import arm, deployment, distribution, model_folder, sglang_trial, tree
from tests.engines.sglang.server import ACCEPTED
from tests.orchestrator.acting import ANY_LOAD, MATCH
from tests.orchestrator.processes import VARIABLE, eventually, marked, new_mark

BLOCK = 8
PLAIN, CHAIN, TREE = arm(Method.AUTOREGRESSIVE), arm(Method.DFLASH), tree()


@dataclass
class Bench:
    """A slot, and deployments of the scripted server that it can start."""

    slot: Slot
    folder: Path
    mark: str

    def deployment(self, script: str = "", **changes: Any) -> Deployment:
        target, drafter = self.folder / "target", self.folder / "drafter"
        environment = {"PYTHONPATH": str(self.folder / "site"), VARIABLE: self.mark, "SCRIPTED_SGLANG": script}
        models = {"target": str(target), "target_digest": digest(target)}
        models |= {"drafter": str(drafter), "drafter_digest": digest(drafter)}
        return deployment(**models | {"environment": environment} | changes)

    async def run(self, script: str = "", subject: Arm = CHAIN, **changes: Any) -> Measurement:
        return await self.slot.run(sglang_trial(self.deployment(script, **changes), subject))


@pytest.fixture
def mark() -> Iterator[str]:
    value = new_mark()
    yield value
    assert marked(value) == {}, "an engine was left behind"


@pytest.fixture
async def bench(mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setenv("ORCHESTRATE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    distribution(tmp_path / "site")
    model_folder(tmp_path / "target")
    model_folder(tmp_path / "drafter", block_size=BLOCK)
    slot = Slot("slot-0", MATCH, ANY_LOAD)
    await slot.open()
    yield Bench(slot, tmp_path, mark)
    await slot.close()


@pytest.mark.parametrize(
    ("subject", "drafted_a_step"),
    [(PLAIN, 0), (CHAIN, BLOCK - 1), (arm(Method.DFLASH, block_size=4), 3), (TREE, 15), (tree(4), 4)],
    ids=["autoregressive", "dflash", "dflash-4", "ddtree", "ddtree-below-a-block"],
)
async def test_a_trial_of_each_method_is_valid(bench: Bench, subject: Arm, drafted_a_step: int) -> None:
    measured = await bench.run(subject=subject)
    record, counters, rows = measured.record, measured.counters, measured.requests
    assert (record.state, record.reason) == (TrialState.VALID, "")
    assert record.identity["method"] == subject.method
    assert record.identity["version"] == "0.5.17"
    assert record.identity["settings"]["radix_cache"] is False
    assert (record.identity["drafter_digest"] is not None) == subject.speculative
    assert counters.emitted == sum(rows["output_tokens"]) - len(rows)
    assert counters.drafted == drafted_a_step * counters.verify_steps == sum(rows["drafted"])
    assert counters.acceptance_length == (1.0 + ACCEPTED if subject.speculative else 1.0)
    assert counters.verify_steps == sum(rows["verify_steps"]) == counters.emitted / counters.acceptance_length
    assert [len(ids) for ids in rows["prompt_token_ids"]] == list(rows["prompt_tokens"])
    assert set(rows["first_chunk_tokens"]) == {1}
    assert list(bench.folder.glob("orchestrate-*.json")) == [] or subject.method is Method.DDTREE


async def test_greedy_arms_say_the_same(bench: Bench) -> None:
    """Token ids come back whole and in order, so that the gate can compare them."""
    plain, branching = await bench.run(subject=PLAIN), await bench.run(subject=TREE)
    texts = [
        measured.requests.set_index("prompt_id")["token_ids"].map(list).to_dict() for measured in (plain, branching)
    ]
    assert texts[0] == texts[1]
    assert all(len(ids) == 13 for ids in texts[0].values())


async def test_the_plugin_s_words_are_in_the_identity(bench: Bench) -> None:
    identity = (await bench.run(subject=tree(31, policy="auto", topk=6))).record.identity
    assert (identity["budget"], identity["chain"], identity["block_size"]) == (31, False, BLOCK)
    told = {name: identity["settings"][name] for name in ("policy", "widths", "topk", "attention", "plugin")}
    assert told == {"policy": "auto", "widths": "7 31", "topk": 6, "attention": "kernel", "plugin": "0.1.0"}
    assert (await bench.run(subject=tree(7, chain=True))).record.identity["chain"] is True


async def test_the_target_s_best_tokens_come_from_the_plain_server(bench: Bench) -> None:
    found = await bench.slot.rankings(PLAIN, bench.deployment(), [[1, 2, 3]])
    assert found == [Ranking(found[0].token_ids, (-0.25, -1.5))]
    with pytest.raises(EngineError, match="DFLASH speculative decoding does not support return_logprob yet"):
        await bench.slot.rankings(CHAIN, bench.deployment(), [[1, 2, 3]])


@pytest.mark.parametrize(
    ("script", "subject", "changes", "reason"),
    [
        ("memory", CHAIN, {}, "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static"),
        ("", CHAIN, {"arguments": ("--flag-of-tomorrow",)}, "error: unrecognized arguments: --flag-of-tomorrow"),
        ("never_ready", CHAIN, {"ready_timeout_s": 1.5}, "engine sglang was not ready after 1.5 s"),
        ("no_plugin", TREE, {}, "SGLang knows no ddtree: our plugin is not in its environment"),
        ("plugin_fails", TREE, {}, "could not load our ddtree plugin: ddtree.sglang.symbols.IncompatibleError: SGLang"),
        ("no_report", TREE, {}, "the ddtree plugin left no report at "),
        ("self_check", TREE, {}, "the ddtree plugin's self-check did not pass: token 3 of prompt 1 differs"),
        ("other_budget", TREE, {}, "SGLang verifies 16 tokens a step, the ddtree plugin says 15"),
        ("other_attention", tree(attention="kernel"), {}, "the server says attention = 'stock', the arm says"),
        ("other_dtype", CHAIN, {}, "the server says dtype = 'float16', the arm says 'bfloat16'"),
        ("", CHAIN, {"target_digest": "another"}, "the server says target_digest = "),
        ("", CHAIN, {"drafter_digest": "another"}, "the server says drafter_digest = "),
        ("", CHAIN, {"arguments": ("--load-format", "dummy")}, "the server made up the weights of "),
        ("never_idle", CHAIN, {}, "/flush_cache?timeout=10: HTTP 400"),
        ("dies", CHAIN, {}, "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
        ("cut", CHAIN, {}, "connection lost"),
        ("stream_error", CHAIN, {}, "the server broke off: the scheduler is gone"),
        ("aborts", CHAIN, {}, "the server broke off: Out of KV slots"),
        ("garbage", CHAIN, {}, "an event of SGLang's stream cannot be read"),
        ("miscounts", CHAIN, {}, "counters disagree: the server says verify_steps = "),
    ],
)
async def test_every_fault_is_one_line_and_frees_the_slot(
    bench: Bench, script: str, subject: Arm, changes: dict[str, Any], reason: str
) -> None:
    measured = await bench.run(script, subject, **changes)
    assert measured.record.state is not TrialState.VALID
    assert reason in measured.record.reason
    assert "\n" not in measured.record.reason
    assert eventually(lambda: marked(bench.mark) == {}), "the slot is free"


async def test_after_a_fault_the_sweep_goes_on(bench: Bench) -> None:
    assert (await bench.run("dies")).record.state is not TrialState.VALID
    assert (await bench.run()).record.state is TrialState.VALID


async def test_a_port_that_is_taken_is_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(process, "free_port", lambda: taken.getsockname()[1])
        measured = await bench.run()
    assert measured.record.state is not TrialState.VALID
    assert "Address already in use" in measured.record.reason
