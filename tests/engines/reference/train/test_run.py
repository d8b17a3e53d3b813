"""The whole trainer on a tiny target, from text to checkpoint, on the CPU."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from engines.reference.train.__main__ import main
from engines.reference.train.checkpoint import config_document
from engines.reference.train.corpus import load_corpus
from engines.reference.train.drafter import Drafter, DrafterConfig

QUICK = [
    argument
    for pair in (
        ("--device", "cpu"),
        ("--dtype", "float32"),
        ("--layers", "2"),
        ("--block-size", "4"),
        ("--target-layers", "0,1,3"),
        ("--tokens", "2k"),
        ("--wave", "24"),
        ("--user-tokens", "8"),
        ("--response-tokens", "32"),
        ("--held-out", "4"),
        ("--conversations", "8"),
        ("--anchors", "8"),
        ("--lr", "5e-3"),
        ("--budgets", "3,7"),
        ("--minutes", "5"),
        ("--seed", "3"),
    )
    for argument in pair
]


def train(target: Path, out: Path, *more: str) -> dict:
    assert main(["--target", str(target), "--out", str(out), *QUICK, *more]) == 0
    return json.loads((out / "training.json").read_text())


@pytest.fixture(scope="module")
def trained(target_folder, tmp_path_factory):
    root = tmp_path_factory.mktemp("run")
    more = ("--steps", "120", "--save-data", str(root / "data.safetensors"), "--parts-dir", str(root / "parts"))
    return root, train(target_folder, root / "out", *more)


def test_training_lowers_the_loss_and_raises_acceptance_above_where_it_began(trained):
    _, record = trained
    assert record["status"] == "finished"
    assert record["steps"] == 120
    before, after = record["evaluations"][0], record["evaluations"][-1]
    assert after["linear"] > before["linear"] + 0.1
    assert after["position_accuracy"][0] > 0.1 > 10 / 259
    assert after["tree"]["7"] >= after["tree"]["3"] > 1.0
    # Chance is log 259 = 5.56; an untrained drafter starts above it.
    assert record["losses"][-1]["loss"] < 5.0


def test_the_checkpoint_has_the_layout(trained, source):
    root, _ = trained
    config = DrafterConfig.for_target(source.config, layers=2, block_size=4, target_layer_ids=(0, 1, 3), mask_token=0)
    assert json.loads((root / "out" / "config.json").read_text()) == config_document(config)
    tensors = load_file(root / "out" / "model.safetensors")
    wanted = Drafter(config).state_dict()
    assert {name: tensor.shape for name, tensor in tensors.items()} == {
        name: tensor.shape for name, tensor in wanted.items()
    }
    assert "| best-first tree, budget 7 |" in (root / "out" / "README.md").read_text()
    assert (root / "parts" / "model.safetensors").read_bytes() == (root / "out" / "model.safetensors").read_bytes()


def test_the_same_seed_gives_the_same_weights_and_another_seed_does_not(target_folder, tmp_path):
    short = ("--steps", "4", "--tokens", "200")
    train(target_folder, tmp_path / "a", *short)
    train(target_folder, tmp_path / "b", *short)
    train(target_folder, tmp_path / "c", *short, "--seed", "4")
    first, second, other = (load_file(tmp_path / name / "model.safetensors") for name in "abc")
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["fc.weight"], other["fc.weight"])


@pytest.mark.parametrize(
    "more", [("--loss", "mix"), ("--loss", "kl"), ("--optimiser", "muon"), ("--dtype", "bfloat16")]
)
def test_training_goes_on_from_saved_data_and_weights(target_folder, trained, tmp_path, more):
    root, record = trained
    again = ("--data", str(root / "data.safetensors"), "--init", str(root / "out"), "--steps", "3", "--lr", "1e-3")
    resumed = train(target_folder, tmp_path, *again, "--tokens", "1M", *more)
    assert resumed["data"]["response_tokens"] == record["data"]["response_tokens"]
    start, end = resumed["evaluations"][0]["linear"], record["evaluations"][-1]["linear"]
    assert start == pytest.approx(end, abs=0.05)


def test_saved_data_is_the_corpus_and_can_be_cut(trained):
    root, record = trained
    whole = load_corpus(root / "data.safetensors", 259, held_out=99, tokens=10**9)
    assert whole.tokens == record["data"]["response_tokens"]
    assert len(whole.held_out) == 4
    cut = load_corpus(root / "data.safetensors", 259, held_out=2, tokens=100)
    assert len(cut.held_out) == 2
    assert 100 <= cut.tokens < 100 + 32
    with pytest.raises(ValueError, match="vocabulary of 259, the target's has 300"):
        load_corpus(root / "data.safetensors", 300, held_out=2, tokens=100)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--minutes", "0"), "--minutes 0.0: must be above 0"),
        (("--held-out", "24"), "--held-out 24: must be below --wave 24"),
        (("--response-tokens", "600"), "do not fit the target's 512"),
        (("--target-layers", "0,4"), "each must be 0 to 3"),
        (("--device", "tpu"), "must be cuda, cuda:N or cpu"),
        (("--budgets", "0"), "each must be 1 to 1023"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(target_folder, tmp_path, capsys, more, message):
    assert main(["--target", str(target_folder), "--out", str(tmp_path), *QUICK, *more]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert message in lines[-1]
    assert sum(line.startswith("error: ") for line in lines) == 1


def test_a_run_ends_in_time_without_a_number_of_steps(target_folder, trained, tmp_path):
    root, _ = trained
    record = train(target_folder, tmp_path, "--data", str(root / "data.safetensors"), "--minutes", "0.2")
    assert record["status"] == "finished"
    assert record["steps"] > 1
    assert record["run_seconds"] < 20
