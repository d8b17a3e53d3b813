"""The adapter in a slot, with a scripted server in SGLang's place: good trials, and every fault costs its own trial."""

from __future__ import annotations

from typing import Any

import pytest

from engines.base import Arm, EngineError, Method
from orchestrator.records import TrialState
from tests.engines.scripted import BLOCK, TOKENS, Bench, Scripted
from tests.engines.sglang.acting import SGLANG, arm, tree
from tests.engines.sglang.server import ACCEPTED

PLAIN, CHAIN, TREE = arm(Method.AUTOREGRESSIVE), arm(Method.DFLASH), tree()


@pytest.fixture
def scripted() -> Scripted:
    return SGLANG


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
    assert all(len(ids) == TOKENS for ids in texts[0].values())


async def test_the_plugin_s_words_are_in_the_identity(bench: Bench) -> None:
    identity = (await bench.run(subject=tree(31, policy="auto", topk=6))).record.identity
    assert (identity["budget"], identity["chain"], identity["block_size"]) == (31, False, BLOCK)
    told = {name: identity["settings"][name] for name in ("policy", "widths", "topk", "attention", "plugin")}
    assert told == {"policy": "auto", "widths": "7 31", "topk": 6, "attention": "kernel", "plugin": "0.1.0"}
    assert (await bench.run(subject=tree(7, chain=True))).record.identity["chain"] is True


async def test_the_identity_says_who_prefills(bench: Bench) -> None:
    for subject, expected in ((PLAIN, "fa3"), (TREE, "fa3"), (tree(prefill_attention_backend="triton"), "triton")):
        identity = (await bench.run(subject=subject)).record.identity
        assert identity["settings"]["prefill_attention_backend"] == expected


async def test_the_identity_says_what_was_asked_of_the_wait_for_slots(bench: Bench) -> None:
    for arguments, expected in (((), None), (("--min-free-slots-delay", "1"), 1)):
        identity = (await bench.run(subject=CHAIN, arguments=arguments)).record.identity
        assert identity["settings"]["min_free_slots_delay"] == expected


async def test_every_arm_answers_the_same_longest_request(bench: Bench) -> None:
    """A tree's server is given room for a tree more, by the plugin, and serves what the others serve."""
    found = [(await bench.run(subject=subject)).record.identity["settings"]["max_context"] for subject in (CHAIN, TREE)]
    assert found == [512, 512]


async def test_a_server_that_drafts_cannot_rank(bench: Bench) -> None:
    with pytest.raises(EngineError, match="DFLASH speculative decoding does not support return_logprob yet"):
        await bench.slot.rankings(CHAIN, bench.deployment(), [[1, 2, 3]])


@pytest.mark.parametrize(
    ("script", "subject", "changes", "reason"),
    [
        ("memory", CHAIN, {}, "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static"),
        ("no_plugin", TREE, {}, "SGLang knows no ddtree: our plugin is not in its environment"),
        ("plugin_fails", TREE, {}, "could not load our ddtree plugin: ddtree.sglang.symbols.IncompatibleError: SGLang"),
        ("no_report", TREE, {}, "the ddtree plugin left no report at "),
        ("self_check", TREE, {}, "the ddtree plugin's self-check did not pass: token 3 of prompt 1 differs"),
        ("other_budget", TREE, {}, "SGLang verifies 16 tokens a step, the ddtree plugin says 15"),
        ("short_context", TREE, {}, "the server says max_context = 472, the arm says 512"),
        ("other_attention", tree(attention="kernel"), {}, "the server says attention = 'stock', the arm says"),
        ("other_dtype", CHAIN, {}, "the server says dtype = 'float16', the arm says 'bfloat16'"),
        ("", CHAIN, {"arguments": ("--load-format", "dummy")}, "the server made up the weights of "),
        ("never_frozen", CHAIN, {}, "/freeze_gc: HTTP 500"),
        ("never_idle", CHAIN, {}, "/flush_cache?timeout=10: HTTP 400"),
        ("dies", CHAIN, {}, "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
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
    bench.costs_its_own_trial(measured, reason)


async def test_after_a_fault_the_sweep_goes_on(bench: Bench) -> None:
    assert (await bench.run("dies")).record.state is not TrialState.VALID
    assert (await bench.run()).record.state is TrialState.VALID
