import pytest

from engines.reference.decoding import clock
from engines.reference.decoding import engine as module
from engines.reference.decoding.engine import Engine, GenerationRequest, Method, SamplingParams
from tests.engines.reference.conftest import TinyPair
from tests.engines.reference.running import Answer, answer, drain, request

METHODS = [Method("autoregressive"), Method("dflash"), Method("ddtree", 15)]
PROMPT = [3, 1, 4, 1, 5]


@pytest.fixture(params=METHODS, ids=str)
def engine(request: pytest.FixtureRequest, tiny_pair: TinyPair) -> Engine:
    return Engine(tiny_pair.target, tiny_pair.drafter, request.param, 2, 64)


@pytest.fixture(scope="module")
def text(tiny_pair: TinyPair) -> list[int]:
    """What follows PROMPT, greedily."""
    return tiny_pair.naive.greedy(PROMPT, 59)


def test_max_tokens_ends_with_length(engine: Engine, text: list[int]) -> None:
    for count in (1, 2, 9):
        reply = answer(engine, PROMPT, max_tokens=count, ignore_eos=True)
        assert reply.tokens == text[:count]
        assert reply.finish_reason == "length"


def test_the_context_limit_ends_with_length_and_overruns_nothing(engine: Engine, text: list[int]) -> None:
    """64 positions: 5 of the prompt, 59 tokens; trees near the end reach beyond."""
    reply = answer(engine, PROMPT, max_tokens=1000, ignore_eos=True)
    assert reply.tokens == text
    assert reply.finish_reason == "length"


def test_two_requests_reach_the_context_limit_side_by_side(engine: Engine, text: list[int]) -> None:
    for name in "ab":
        engine.submit(request(name, PROMPT, max_tokens=1000, ignore_eos=True))
    assert [reply.tokens for reply in drain(engine).values()] == [text, text]


def test_a_stop_token_ends_the_text_and_is_its_last_token(engine: Engine, text: list[int]) -> None:
    for stop in set(text) - {text[0]}:
        reply = answer(engine, PROMPT, max_tokens=59, ignore_eos=True, stop_token_ids=(stop,))
        assert reply.tokens == text[: text.index(stop) + 1]
        assert reply.finish_reason == "stop"


def test_a_stop_token_at_the_limit_counts_as_stop(engine: Engine, text: list[int]) -> None:
    reply = answer(engine, PROMPT, max_tokens=1, ignore_eos=True, stop_token_ids=(text[0],))
    assert (reply.tokens, reply.finish_reason) == (text[:1], "stop")


def test_end_of_text_stops_unless_ignored(engine: Engine, tiny_pair: TinyPair) -> None:
    eos = tiny_pair.target.config.eos_token_ids
    assert eos == (2,)
    for first in range(13):
        free = answer(engine, [first, 7], max_tokens=40, ignore_eos=True)
        if 2 in free.tokens:
            break
    assert free.finish_reason == "length"
    reply = answer(engine, [first, 7], max_tokens=40)
    assert (reply.tokens, reply.finish_reason) == (free.tokens[: free.tokens.index(2) + 1], "stop")


def test_long_prompts_are_prefilled_in_chunks(engine: Engine, text: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PREFILL_CHUNK", 2)
    reply = answer(engine, PROMPT, max_tokens=20, ignore_eos=True)
    assert reply.tokens == text[:20]
    assert engine.stage_times().prefill_steps == 3


@pytest.mark.parametrize("when", range(8))
def test_cancelling_frees_the_slot_and_disturbs_nobody(
    engine: Engine, text: list[int], monkeypatch: pytest.MonkeyPatch, when: int
) -> None:
    """Cancelled after `when` steps: while waiting, in the middle of its prefill or while it decodes."""
    monkeypatch.setattr(module, "PREFILL_CHUNK", 2)
    for name in ("gone", "kept", "late"):
        engine.submit(request(name, PROMPT, max_tokens=20, ignore_eos=True))
    answers: dict[str, Answer] = {}
    for _ in range(when):
        for emission in engine.step():
            answers.setdefault(emission.request_id, Answer()).add(emission)
    engine.cancel("gone")
    before = len(answers["gone"].tokens) if "gone" in answers else 0
    engine.cancel("gone")
    engine.cancel("never heard of")
    assert engine.running + engine.waiting == 2
    drain(engine, answers)
    assert [answers[name].tokens for name in ("kept", "late")] == [text[:20]] * 2
    assert before == (len(answers["gone"].tokens) if "gone" in answers else 0)
    assert not engine.has_work()


@pytest.mark.parametrize("cancelled", ["running", "waiting", "prefilling"])
def test_every_state_can_be_cancelled(
    engine: Engine, text: list[int], monkeypatch: pytest.MonkeyPatch, cancelled: str
) -> None:
    monkeypatch.setattr(module, "PREFILL_CHUNK", 2)
    names = ["running", "prefilling", "waiting"]
    for name in names:
        engine.submit(request(name, PROMPT, max_tokens=20, ignore_eos=True))
    answers: dict[str, Answer] = {}
    for _ in range(4):
        for emission in engine.step():
            answers.setdefault(emission.request_id, Answer()).add(emission)
    assert (engine.running, engine.waiting) == (2, 1)
    engine.cancel(cancelled)
    drain(engine, answers)
    for name in names:
        if name != cancelled:
            assert answers[name].tokens == text[:20]


def test_counters_add_up(engine: Engine) -> None:
    for index in range(5):
        engine.submit(request(str(index), PROMPT[index:], max_tokens=7 + index, ignore_eos=True))
    answers = drain(engine)
    total = engine.stats()
    method = engine.method
    for reply in answers.values():
        stats = reply.stats
        assert stats.emitted == len(reply.tokens) - 1
        assert stats.verify_steps == len(reply.steps) - 1
        assert stats.accepted == sum(stats.accepted_by_depth)
        assert stats.verify_steps + stats.accepted - 1 <= stats.emitted <= stats.verify_steps + stats.accepted
        assert stats.accepted_by_depth == sorted(stats.accepted_by_depth, reverse=True)
        nodes = {"autoregressive": 0, "dflash": 4, "ddtree": 15}[method.name]
        assert stats.drafted == nodes * stats.verify_steps
        if method.name == "autoregressive":
            assert stats.accepted == 0
    for name in ("verify_steps", "drafted", "accepted", "emitted"):
        assert getattr(total, name) == sum(getattr(reply.stats, name) for reply in answers.values())
    assert sum(total.accepted_by_depth) == total.accepted


def test_stage_times_hold_the_stages_that_ran(engine: Engine) -> None:
    answer(engine, PROMPT, ignore_eos=True)
    times = engine.stage_times()
    speculative = engine.method.name != "autoregressive"
    assert times.verify > 0
    assert times.prefill > 0
    assert times.host > 0
    for stage in (times.draft, times.build, times.commit):
        assert (stage > 0) == speculative
    assert times.decode_steps == engine.stats().verify_steps
    engine.reset()
    assert engine.stage_times().decode_steps == engine.stats().verify_steps == 0


def test_logprobs_of_every_token_are_the_targets(engine: Engine, tiny_pair: TinyPair, text: list[int]) -> None:
    reply = answer(engine, PROMPT, max_tokens=12, ignore_eos=True, logprobs=3)
    assert len(reply.logprobs) == 12
    for index, top in enumerate(reply.logprobs):
        exact = tiny_pair.naive.logits([*PROMPT, *text[:index]])[-1].log_softmax(-1)
        best = exact.topk(3)
        assert [token for token, _ in top] == best.indices.tolist()
        assert [value for _, value in top] == pytest.approx(best.values.tolist(), abs=1e-3)
    assert answer(engine, PROMPT, max_tokens=12, ignore_eos=True).logprobs == []


def test_the_method_changes_only_while_idle(tiny_pair: TinyPair, text: list[int]) -> None:
    engine = Engine(tiny_pair.target, tiny_pair.drafter, METHODS[0], 2, 64)
    engine.submit(request("a", PROMPT, ignore_eos=True))
    with pytest.raises(ValueError, match="only while no request waits or runs"):
        engine.set_method(METHODS[1])
    drain(engine)
    for method in METHODS:
        engine.set_method(method)
        assert engine.method == method
        assert answer(engine, PROMPT, max_tokens=20, ignore_eos=True).tokens == text[:20]


def test_speculation_needs_a_drafter(tiny_pair: TinyPair) -> None:
    with pytest.raises(ValueError, match="method dflash needs a drafter"):
        Engine(tiny_pair.target, None, Method("dflash"), 1, 64)
    engine = Engine(tiny_pair.target, None, Method("autoregressive"), 1, 64)
    with pytest.raises(ValueError, match="method ddtree needs a drafter"):
        engine.set_method(Method("ddtree", 3))
    assert engine.method == Method("autoregressive")


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "the prompt is empty"),
        ([0] * 64, "64 tokens, which leaves no room"),
        ([13], "must lie in 0..12"),
        ([-1], "must lie in 0..12"),
    ],
)
def test_requests_that_can_never_run_are_refused(tiny_pair: TinyPair, prompt: list[int], message: str) -> None:
    engine = Engine(tiny_pair.target, None, Method("autoregressive"), 1, 64)
    with pytest.raises(ValueError, match=message):
        engine.submit(request("a", prompt))
    assert not engine.has_work()
    assert engine.step() == []


def test_request_ids_are_unique_while_in_use(tiny_pair: TinyPair) -> None:
    engine = Engine(tiny_pair.target, None, Method("autoregressive"), 1, 64)
    engine.submit(request("a", PROMPT))
    with pytest.raises(ValueError, match="request id a is already in use"):
        engine.submit(request("a", PROMPT))
    drain(engine)
    engine.submit(request("a", PROMPT))


@pytest.mark.parametrize(("batch", "context"), [(0, 64), (1, 1), (1, 257)])
def test_limits_that_make_no_sense(tiny_pair: TinyPair, batch: int, context: int) -> None:
    with pytest.raises(ValueError, match="must be at least 1 and max_context"):
        Engine(tiny_pair.target, None, Method("autoregressive"), batch, context)


@pytest.mark.parametrize(
    "params",
    [{"temperature": -1.0}, {"top_p": 0.0}, {"top_k": -1}, {"min_p": 2.0}, {"max_tokens": 0}, {"logprobs": 0}],
)
def test_parameters_out_of_range(params: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(params))):
        GenerationRequest("a", (1,), SamplingParams(**params))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ddtree",), "needs a budget"),
        (("ddtree", 0), "needs a budget"),
        (("dflash", 7), "takes neither"),
        (("eagle",), "must be one of"),
    ],
)
def test_methods_that_do_not_exist(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Method(*arguments)  # type: ignore[arg-type]


class Hands:
    """A clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def test_what_lies_between_two_steps_is_the_steps_time_and_what_lies_between_requests_is_not(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hand-over of a step's tokens holds up the next one, so that it is part of what a token takes."""
    hands = Hands()
    monkeypatch.setattr(clock, "perf_counter", hands)
    for name in ("first", "second"):
        engine.submit(request(name, PROMPT, max_tokens=9, ignore_eos=True))
        while engine.has_work():
            engine.step()
            hands.now += 1.0
        hands.now += 1000.0
    times = engine.stage_times()
    assert (times.prefill, times.host) == (0.0, times.decode_steps)


def test_time_after_a_cancelled_request_is_nobodys(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    hands = Hands()
    monkeypatch.setattr(clock, "perf_counter", hands)
    engine.submit(request("gone", PROMPT, max_tokens=40, ignore_eos=True))
    engine.step()
    engine.step()
    engine.cancel("gone")
    hands.now += 1000.0
    answer(engine, PROMPT, max_tokens=9, ignore_eos=True)
    assert (engine.stage_times().prefill, engine.stage_times().host) == (0.0, 0.0)
