from itertools import islice
from time import monotonic

import pytest
import torch

from engines.reference.train.generate import Limits, Wave, generate
from engines.reference.train.prompts import ChatFrame, Opening, encode, self_written

LIMITS = Limits(opening=48, user=10, response=20)


@pytest.fixture
def frame(source):
    return ChatFrame.of(source.tokenizer)


@pytest.fixture
def wave(target, frame):
    torch.manual_seed(0)
    return Wave(target, frame, batch=6, limits=LIMITS)


def opening(source, frame, text: str, *, complete: bool) -> Opening:
    return Opening((*encode(source.tokenizer, frame.before), *encode(source.tokenizer, text)), complete)


def greedy(target, tokens: list[int], count: int) -> list[int]:
    """Plain greedy continuation, the whole pass again for each token."""
    for _ in range(count):
        _, final = target.hidden_states(torch.tensor([tokens]), (0,))
        tokens = [*tokens, int(target.logits(final)[0, -1].argmax())]
        if tokens[-1] in target.config.stop_ids:
            break
    return tokens


def test_complete_prompts_of_any_length_are_answered_greedily_after_the_template(source, target, frame, wave):
    texts = ["a", "bcd efg", "hello there, you", "xyz"]
    found = wave.run([opening(source, frame, text, complete=True) for text in texts], [0.0] * 4)
    assert len(found) == 4
    for text, item in zip(texts, found, strict=True):
        prompt = [*encode(source.tokenizer, frame.before + text), *frame.after]
        assert item.start == len(prompt)
        assert item.tokens.tolist() == greedy(target, prompt, LIMITS.response)


def test_self_written_turns_begin_with_the_opener_and_end_within_the_limit(source, frame, wave):
    starts = list(islice(self_written(source.tokenizer, frame, 1, 20), 6))
    found = wave.run(starts, [0.0, 0.7] * 3)
    for begin, item in zip(starts, found, strict=True):
        tokens = tuple(item.tokens.tolist())
        assert tokens[: len(begin.tokens)] == begin.tokens
        assert tokens[item.start - len(frame.after) : item.start] == frame.after
        assert 0 <= item.start - len(frame.after) - len(begin.tokens) <= LIMITS.user
        assert item.response_tokens <= LIMITS.response
        assert 2 not in tokens[item.start : -1]


def test_a_wave_leaves_nothing_behind_for_the_next(source, frame, wave):
    starts = [opening(source, frame, "hello there, you", complete=True)] * 6
    first = wave.run(starts, [0.0] * 6)
    wave.run([opening(source, frame, "q", complete=True)] * 6, [0.0] * 6)
    again = wave.run(starts, [0.0] * 6)
    assert [item.tokens.tolist() for item in first] == [item.tokens.tolist() for item in again]


def test_sampled_tokens_follow_the_target_distribution(source, target, frame):
    torch.manual_seed(3)
    wave = Wave(target, frame, batch=1500, limits=Limits(opening=16, user=1, response=2))
    prompt = opening(source, frame, "ab", complete=True)
    found = wave.run([prompt] * 1500, [0.7] * 1500)
    _, final = target.hidden_states(found[0].tokens[None, : found[0].start].long(), (0,))
    wanted = (target.logits(final)[0, -1] / 0.7).softmax(-1)
    counts = torch.bincount(torch.tensor([int(item.tokens[item.start]) for item in found]), minlength=259)
    big = wanted * 1500 >= 5
    statistic = ((counts - 1500 * wanted).square() / (1500 * wanted))[big].sum()
    freedom = int(big.sum()) - 1
    assert statistic < freedom + 5 * (2 * freedom) ** 0.5


def test_held_out_conversations_are_greedy_and_never_trained_on(source, target, frame, wave):
    repeated = opening(source, frame, "same", complete=True)
    others = [opening(source, frame, text, complete=True) for text in "abcdefghijklmnop"]
    corpus = generate(wave, iter([repeated, *others[:3], repeated, *others]), tokens=10**6, held_out=2, deadline=1e12)
    barred = {item.prompt for item in corpus.held_out}
    assert len(corpus.held_out) == 2
    assert not barred & {item.prompt for item in corpus.training}
    for item in corpus.held_out:
        assert item.tokens.tolist() == greedy(target, list(item.prompt), LIMITS.response)


def test_generation_ends_with_the_tokens_or_the_time(source, frame, wave):
    def endless():
        return self_written(source.tokenizer, frame, 1, 20)

    assert len(generate(wave, endless(), tokens=1, held_out=2, deadline=1e12).training) <= 4
    assert len(generate(wave, endless(), tokens=10**9, held_out=2, deadline=monotonic()).training) <= 4
    many = generate(wave, endless(), tokens=150, held_out=2, deadline=1e12)
    assert many.tokens >= 150
