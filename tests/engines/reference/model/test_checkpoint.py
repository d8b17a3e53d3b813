import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from engines.reference.model.checkpoint import load_drafter, load_target
from engines.reference.model.config import CheckpointError
from engines.reference.model.mask import causal
from engines.reference.model.target import Target, plan_pass
from tests.engines.reference.families import TARGETS, write_drafter, write_target
from tests.engines.reference.naive import Naive

IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]


def logits(target: Target, ids: list[int], split: int) -> Tensor:
    """Two cached passes: the first `split` tokens, then the rest."""
    cache, rotary = target.new_cache(2, len(ids)), target.rotary_table(len(ids))
    found = []
    for start, stop in ((0, split), (split, len(ids))):
        prefix, positions = torch.tensor([start]), torch.arange(start, stop).unsqueeze(0)
        among = causal(1, stop - start, prefix.device)
        step = plan_pass(target.config, cache, rotary, among, prefix, positions, 1, stop)
        found.append(target.logits(target.forward(torch.tensor([ids[start:stop]]), step)[0]))
    return torch.cat(found)


@pytest.mark.parametrize("family", TARGETS)
def test_every_family_computes_what_transformers_does(family: str, tmp_path: Path) -> None:
    folder = write_target(tmp_path / "model", family)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    expected = theirs(torch.tensor([IDS])).logits[0].detach()
    torch.testing.assert_close(logits(load_target(folder, torch.float32), IDS, 7), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(Naive(folder).logits(IDS), expected.double(), rtol=1e-4, atol=1e-4)


def test_bfloat16_is_near_float32(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "model", "llama")
    exact, rounded = (logits(load_target(folder, dtype), IDS, 7).float() for dtype in (torch.float32, torch.bfloat16))
    assert 0 < (exact - rounded).abs().max() < 0.05 * exact.abs().max()


def test_shards_are_read_together(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "model", "qwen2")
    expected = logits(load_target(folder, torch.float32), IDS, 5)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    places = {name: f"model-{1 + index % 2}.safetensors" for index, name in enumerate(names)}
    for file in set(places.values()):
        save_file({name: tensors[name] for name in names if places[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert torch.equal(logits(load_target(folder, torch.float32), IDS, 5), expected)


def edit(folder: Path, add: dict[str, Tensor] | None = None, drop: str | None = None) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors |= add or {}
    tensors.pop(drop or "", None)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"drop": "model.norm.weight"}, "tensor model.norm.weight is missing"),
        ({"drop": "lm_head.weight"}, "lm_head.weight is missing and tie_word_embeddings is false"),
        ({"add": {"model.layers.0.mlp.router.weight": torch.ones(2)}}, "1 tensors have no place in this model"),
        ({"add": {"model.norm.weight": torch.ones(31)}}, r"model.norm.weight has shape \[31\]"),
    ],
)
def test_tensors_that_do_not_fit_the_config(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    folder = write_target(tmp_path / "model", "qwen3")
    edit(folder, **change)
    with pytest.raises(CheckpointError, match=message):
        load_target(folder, torch.float32)


def test_no_weights_and_broken_weights(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "model", "llama")
    (folder / "model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(CheckpointError, match="not a safetensors file"):
        load_target(folder, torch.float32)
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="no such file"):
        load_target(folder, torch.float32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 40}, "hidden_size 40 differs from the target's 32"),
        ({"vocabulary": 14}, "vocab_size 14 differs from the target's 13"),
        (
            {"dflash_config": {"mask_token_id": 1, "target_layer_ids": [0, 3]}},
            r"target_layer_ids \[0, 3\] must name layers of the target, which has 0..2",
        ),
        (
            {"dflash_config": {"mask_token_id": 13, "target_layer_ids": [0, 2]}},
            "mask_token_id 13 must lie in the target's vocabulary, 0..12",
        ),
        ({"block": 1}, "block_size 1 drafts nothing"),
    ],
)
def test_a_drafter_for_another_target_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    target = load_target(write_target(tmp_path / "target", "llama"), torch.float32)
    folder = write_drafter(tmp_path / "drafter", **changes)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_drafter(folder, target)
    assert "\n" not in str(caught.value)


def test_a_feature_projection_for_another_number_of_layers_is_refused(tmp_path: Path) -> None:
    target = load_target(write_target(tmp_path / "target", "llama"), torch.float32)
    folder = write_drafter(tmp_path / "drafter")
    edit(folder, add={"fc.weight": torch.ones(32, 96)})
    with pytest.raises(CheckpointError, match=r"fc.weight has shape \[32, 96\], but 2 target_layer_ids .* \[32, 64\]"):
        load_drafter(folder, target)


def test_key_norms_in_some_layers_only_are_refused(tmp_path: Path) -> None:
    target = load_target(write_target(tmp_path / "target", "llama"), torch.float32)
    folder = write_drafter(tmp_path / "drafter")
    edit(folder, drop="layers.1.self_attn.k_norm.weight")
    with pytest.raises(CheckpointError, match=r"k_norm.weight is missing"):
        load_drafter(folder, target)
