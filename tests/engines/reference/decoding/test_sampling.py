from collections import Counter
from itertools import product

import pytest
import torch
from scipy.stats import chisquare

from engines.reference.decoding.engine import Engine, Method, SamplingParams
from engines.reference.decoding.sampling import draw, top_logprobs, uniform
from tests.engines.reference.conftest import load_pair
from tests.engines.reference.families import write_drafter, write_target
from tests.engines.reference.naive import Naive
from tests.engines.reference.running import drain, request

VOCABULARY, LENGTH, SAMPLES = 5, 3, 3000


def test_uniforms_are_uniform_in_position_and_in_seed() -> None:
    for values in ([uniform(7, position) for position in range(4000)], [uniform(seed, 7) for seed in range(4000)]):
        assert all(0 <= value < 1 for value in values)
        assert chisquare(list(Counter(int(value * 20) for value in values).values())).pvalue > 1e-3
    pairs = Counter((int(uniform(seed, 1) * 5), int(uniform(seed, 2) * 5)) for seed in range(4000))
    assert len(pairs) == 25
    assert chisquare(list(pairs.values())).pvalue > 1e-3


def test_uniforms_take_any_seed() -> None:
    assert len({uniform(seed, 3) for seed in (0, -1, 2**63, 2**64 - 2, 1)}) == 5


def test_greedy_rows_are_the_argmax_beside_sampled_ones() -> None:
    logits = torch.randn(2, 3, 50, generator=torch.Generator().manual_seed(0))
    where = torch.arange(3).expand(2, 3)
    mixed = draw(logits, [SamplingParams(), SamplingParams(temperature=1.0)], where)
    assert torch.equal(mixed[0].long(), logits[0].argmax(-1))
    assert torch.equal(draw(logits, [SamplingParams()] * 2, where), logits.argmax(-1))


def test_top_logprobs_are_the_float32_log_softmax() -> None:
    logits = torch.randn(2, 9, generator=torch.Generator().manual_seed(0)).bfloat16()
    expected = logits.float().log_softmax(-1)
    for row, found in enumerate(top_logprobs(logits, 3)):
        assert [token for token, _ in found] == expected[row].topk(3).indices.tolist()
        assert [value for _, value in found] == pytest.approx(expected[row].topk(3).values.tolist())


def continuations(naive: Naive, prompt: list[int], heat: float) -> dict[tuple[int, ...], float]:
    """The exact probability of every continuation."""
    exact = {}
    for text in product(range(VOCABULARY), repeat=LENGTH):
        rows = (naive.logits([*prompt, *text])[len(prompt) - 1 : -1] / heat).log_softmax(-1)
        exact[text] = float(rows[torch.arange(LENGTH), torch.tensor(text)].sum().exp())
    return exact


def fit(counts: Counter[tuple[int, ...]], exact: dict[tuple[int, ...], float]) -> float:
    """p-value of the counts; continuations expected less than five times form one cell."""
    likely = [text for text, chance in exact.items() if chance * SAMPLES >= 5]
    assert len(likely) > 20
    observed = [counts[text] for text in likely]
    expected = [exact[text] * SAMPLES for text in likely]
    rest = [SAMPLES - sum(observed)], [SAMPLES - sum(expected)]
    return float(chisquare(observed + rest[0], expected + rest[1]).pvalue)


@pytest.mark.parametrize("method", [Method("autoregressive"), Method("dflash"), Method("ddtree", 6)], ids=str)
def test_continuations_follow_the_targets_distribution(
    method: Method, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All 125 continuations of three tokens, from a drafter far from the target; a slightly hotter target is told."""
    folder = tmp_path_factory.mktemp("tiny")
    target_folder = write_target(folder / "target", "llama", VOCABULARY, seed=5)
    target, drafter = load_pair(target_folder, write_drafter(folder / "drafter", VOCABULARY, block=4))
    naive, prompt, heat = Naive(target_folder), [3, 1, 4], 2.5
    engine = Engine(target, drafter, method, 32, 16)
    for seed in range(SAMPLES):
        engine.submit(request(str(seed), prompt, temperature=heat, seed=seed, max_tokens=LENGTH + 1, ignore_eos=True))
    counts = Counter(tuple(reply.tokens[:LENGTH]) for reply in drain(engine).values())
    assert fit(counts, continuations(naive, prompt, heat)) > 1e-3
    assert fit(counts, continuations(naive, prompt, heat * 1.15)) < 1e-4
    if method.name != "autoregressive":
        assert engine.stats().accepted > SAMPLES / 10
