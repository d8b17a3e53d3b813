"""When two engines count as agreeing, and what the committed results say of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import cross_engine
from benchmarks.cross_engine import BASELINE, REPAIRED, RESULTS, STOCK, compare, compare_sglang

COMMITTED = RESULTS / "cross_engine.json"
SGLANG = RESULTS / "sglang-h200.json"
REFERENCE = RESULTS / "sglang-reference-cpu.json"


def arm(name: str, slower: float = 1.0) -> dict[str, Any]:
    """16 prompts of 39 tokens in 12 to 27 steps, or in so many times more."""
    steps = {f"p{index:02}": round((12 + index) * slower) for index in range(16)}
    counts = {prompt: {"verify_steps": n, "accepted": 40 - n, "emitted": 39} for prompt, n in steps.items()}
    return {"arm": name, "prompts": 16, "equal_texts": 16, "by_prompt": counts}


def test_the_same_steps_agree_and_a_third_more_do_not() -> None:
    same = compare([arm(BASELINE), arm(REPAIRED)], REPAIRED)
    assert (same["agrees"], same["same_steps_for_every_prompt"]) == (True, True)
    assert same["difference_tokens_per_step"] == [0.0, 0.0]
    worse = compare([arm(BASELINE), arm(STOCK, 1.33)], STOCK)
    assert (worse["agrees"], worse["same_steps_for_every_prompt"]) == (False, False)
    assert worse["difference_tokens_per_step"][1] < 0


@pytest.mark.parametrize(
    ("accepted", "prompts", "agrees"), [(330, 12, True), (330, ["a"] * 12, True), (100, 12, False)]
)
def test_another_machine_agrees_within_the_noise_of_two_samples(
    tmp_path: Path, accepted: int, prompts: object, agrees: bool
) -> None:
    file = tmp_path / "sglang-h200.json"
    theirs = {"verify_steps": 310, "accepted": accepted, "prompts": prompts, "acceptance_length": 1 + accepted / 310}
    file.write_text(json.dumps({"arms": {"dflash": theirs}}))
    found = compare_sglang([arm(BASELINE)], file)
    assert found["agrees"] is agrees
    assert found["acceptance_lengths"][1] == pytest.approx(1 + (16 * 40 - 312) / 312)


def test_what_fails_is_named_and_the_known_defect_is_not() -> None:
    arms = [arm(BASELINE), arm(REPAIRED, 1.33), arm(STOCK, 1.33) | {"equal_texts": 15}]
    result = {"arms": arms, "comparisons": [compare(arms, REPAIRED), compare(arms, STOCK)]}
    assert cross_engine.failures(result) == [f"{STOCK}: texts differ", f"{REPAIRED}: drafts differ"]


def test_the_committed_engines_agree_where_vllm_is_mended() -> None:
    result = json.loads(COMMITTED.read_text())
    assert cross_engine.failures(result) == []
    assert {arm["prompts"] for arm in result["arms"]} == {16}
    mended, stock = compare(result["arms"], REPAIRED), compare(result["arms"], STOCK)
    assert mended["same_steps_for_every_prompt"]
    assert not stock["agrees"]
    norms = result["vllm_rms_norm"]
    assert max(norms["error_first_weight"]) < 1e-5 < 0.1 < min(norms["error_own_weight"][1:])


def test_the_committed_sglang_agrees() -> None:
    result = json.loads(COMMITTED.read_text())
    found = compare_sglang(result["arms"], SGLANG)
    assert found["agrees"]
    assert found in result["comparisons"]


@pytest.mark.parametrize(("theirs", "ours"), [("dflash", "dflash"), ("ddtree-15", "tree-15"), ("ddtree-63", "tree-63")])
def test_sglang_takes_the_steps_of_the_reference_engine_over_the_same_prompts(theirs: str, ours: str) -> None:
    sglang, reference = json.loads(SGLANG.read_text())["arms"][theirs], json.loads(REFERENCE.read_text())
    assert (sglang["prompts"], sglang["tokens"]) == (reference["prompts"], reference["tokens"])
    assert sglang["verify_steps"] == pytest.approx(reference[ours]["verify_steps"], rel=0.01)
