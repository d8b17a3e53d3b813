"""What only a CUDA device shows: captured generation steps and the compiled training step."""

import json

import pytest
import torch

from engines.reference.train.__main__ import main
from engines.reference.train.generate import Limits, Wave
from engines.reference.train.prompts import ChatFrame, Opening, encode
from engines.reference.train.target import Target

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def test_captured_steps_write_the_text_of_plain_ones(source):
    frame = ChatFrame.of(source.tokenizer)
    before = encode(source.tokenizer, frame.before)
    starts = [Opening((*before, *encode(source.tokenizer, text)), complete=True) for text in ("a", "hello", "xyz?")]
    texts = []
    for device in ("cpu", "cuda"):
        target = Target(source.config, source.weights, torch.device(device), torch.float32)
        wave = Wave(target, frame, batch=3, limits=Limits(opening=20, user=4, response=90))
        wave.run(starts[::-1], [0.0] * 3)
        texts.append([item.tokens.tolist() for item in wave.run(starts, [0.0] * 3)])
    assert len(wave.graphs) >= 2
    assert texts[0] == texts[1]


@pytest.mark.parametrize("more", [(), ("--loss", "mix", "--optimiser", "muon")])
def test_a_compiled_training_learns(target_folder, tmp_path, more):
    arguments = (
        "--layers 2 --target-layers 0,1,3 --tokens 20k --wave 256 --response-tokens 64 --held-out 16 --steps 200"
        " --conversations 32 --anchors 16 --lr 4e-3 --minutes 6"
    )
    assert main(["--target", str(target_folder), "--out", str(tmp_path), *arguments.split(), *more]) == 0
    record = json.loads((tmp_path / "training.json").read_text())
    assert record["evaluations"][-1]["linear"] > record["evaluations"][0]["linear"] + 0.1
