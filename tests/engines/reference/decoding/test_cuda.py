"""The engine on a CUDA device, where the Triton kernels build, walk and compact the trees."""

from pathlib import Path

import pytest
import torch

from engines.reference.decoding.engine import Engine, Method
from engines.reference.model.checkpoint import load_drafter, load_target
from tests.engines.reference.families import write_drafter, write_target
from tests.engines.reference.naive import Naive
from tests.engines.reference.running import answer, drain, request

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

METHODS = [Method("autoregressive"), Method("dflash"), Method("ddtree", 4, chain=True), Method("ddtree", 15)]
VOCABULARY = 6
PROMPTS = [[3, 1, 4, 1, 5, 5, 2, 0], [2, 5], [1, 4, 1, 4, 2, 1, 3, 5, 0]]


@pytest.fixture(scope="module", params=["llama", "qwen3-sliding"])
def folders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("cuda")
    target = write_target(folder / "target", request.param, VOCABULARY)
    return target, write_drafter(folder / "drafter", VOCABULARY)


def engine(
    folders: tuple[Path, Path], method: Method, dtype: torch.dtype = torch.float32, device: str = "cuda"
) -> Engine:
    target = load_target(folders[0], dtype, device)
    return Engine(target, load_drafter(folders[1], target), method, 2, 96)


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_greedy_text_equals_a_plain_forward(folders: tuple[Path, Path], method: Method) -> None:
    """And every step accepts what it accepts on the CPU."""
    answers, stats = [], []
    for device in ("cuda", "cpu"):
        running = engine(folders, method, device=device)
        for index, prompt in enumerate(PROMPTS):
            running.submit(request(str(index), prompt, max_tokens=20 + index, ignore_eos=True))
        answers.append(drain(running))
        stats.append(running.stats())
    for index, prompt in enumerate(PROMPTS):
        assert answers[0][str(index)].tokens == Naive(folders[0]).greedy(prompt, 20 + index)
    assert answers[0] == answers[1]
    assert stats[0] == stats[1]
    assert (stats[0].accepted > 0) == (method.name != "autoregressive")


def test_sampled_text_is_the_same_under_every_method(folders: tuple[Path, Path]) -> None:
    texts = [
        answer(engine(folders, method), [4, 5], max_tokens=20, ignore_eos=True, temperature=1.0, seed=5).tokens
        for method in METHODS
    ]
    assert texts == texts[:1] * len(METHODS)


def test_bfloat16_runs_and_drafts(folders: tuple[Path, Path]) -> None:
    running = engine(folders, Method("ddtree", 15), torch.bfloat16)
    reply = answer(running, PROMPTS[0], max_tokens=20, ignore_eos=True, logprobs=2)
    assert [top[0][0] for top in reply.logprobs] == reply.tokens
    assert running.stats().accepted > 0
