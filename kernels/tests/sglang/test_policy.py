import pytest

from ddtree.sglang.policy import TRIAL, CostModel, WidthPolicy

WIDTHS = (8, 16, 64)


def model(**slower: float) -> CostModel:
    """Step times of a target that is memory-bound up to 16 tokens a step and compute-bound after."""
    times = {8: 5.0, 16: 5.1, 64: 6.0} | {int(k[1:]): v for k, v in slower.items()}
    points = {
        (size, w, c): ms * (1 if size == 1 else 1 + w / 32)
        for size in (1, 8)
        for c in (0, 1000)
        for w, ms in times.items()
    }
    return CostModel(points)


def fed(policy: WidthPolicy, expected: list[float], accepted: float, steps: int = 200) -> WidthPolicy:
    for _ in range(steps):
        index = policy.choose(1, 0)
        policy.learn(index, expected, min(accepted, expected[index] - 1))
    return policy


def test_a_wide_tree_where_it_brings_more_than_it_costs() -> None:
    policy = fed(WidthPolicy(WIDTHS, model()), [3.0, 3.6, 4.5], 99)
    assert WIDTHS[policy.choose(1, 0)] == 64


def test_narrow_where_the_step_grows_faster_than_the_tokens() -> None:
    policy = fed(WidthPolicy(WIDTHS, model()), [3.0, 3.6, 4.5], 99)
    assert WIDTHS[policy.choose(8, 0)] == 8


def test_a_drafter_that_promises_too_much_is_believed_less() -> None:
    sure = fed(WidthPolicy(WIDTHS, model(w64=5.6)), [3.0, 3.4, 3.9], 99)
    assert WIDTHS[sure.choose(1, 0)] == 64
    unsure = fed(WidthPolicy(WIDTHS, model(w64=5.6)), [3.0, 3.4, 3.9], 0.3)
    assert unsure.belief < 0.3
    assert WIDTHS[unsure.choose(1, 0)] in (8, 16)


def test_where_the_host_is_slower_than_any_width_the_widest_is_free() -> None:
    policy = fed(WidthPolicy(WIDTHS, model(w64=9.0)), [3.0, 3.1, 3.3], 99)
    assert WIDTHS[policy.choose(1, 0)] != 64
    for _ in range(100):
        policy.timed(policy.choose(1, 0), 1, 0, 12.0)
    assert WIDTHS[policy.choose(1, 0)] == 64


def lived(policy: WidthPolicy, really: dict[int, float], steps: int) -> list[int]:
    """The widths chosen while steps take what they really take."""
    chosen, expected = [], [3.0, 3.6, 4.5]
    for _ in range(steps):
        index = policy.choose(1, 0)
        policy.timed(index, 1, 0, really[WIDTHS[index]])
        policy.learn(index, expected, expected[index] - 1)
        chosen.append(WIDTHS[index])
    return chosen


@pytest.mark.parametrize(
    "really",
    [{8: 5.0, 16: 5.1, 64: 9.0}, {8: 10.0, 16: 10.2, 64: 20.0}],
    ids=["the widest is slower than measured", "all are, and the widest most"],
)
def test_a_width_that_is_slower_than_measured_is_not_taken_for_a_slow_host(really: dict[int, float]) -> None:
    chosen = lived(WidthPolicy(WIDTHS, model()), really, 600)
    assert 64 in chosen
    assert chosen[300:].count(16) > 270


def test_what_was_slow_once_is_tried_again() -> None:
    policy = WidthPolicy(WIDTHS, model())
    lived(policy, {8: 5.0, 16: 5.1, 64: 9.0}, 600)
    assert lived(policy, {8: 5.0, 16: 5.1, 64: 6.0}, 2000)[-1] == 64


def test_a_slow_host_makes_wide_trees_free() -> None:
    assert lived(WidthPolicy(WIDTHS, model()), {8: 12.0, 16: 12.0, 64: 12.0}, 600)[300:].count(64) > 270


def test_what_is_learnt_at_one_batch_size_says_nothing_of_another() -> None:
    policy = fed(WidthPolicy(WIDTHS, model()), [3.0, 3.6, 4.5], 99)
    for _ in range(100):
        policy.timed(2, 1, 0, 12.0)
    assert WIDTHS[policy.choose(1, 0)] == 16
    assert policy.seen(8).ratios == [1.0, 1.0, 1.0]


def test_one_pause_of_the_host_changes_nothing() -> None:
    policy = fed(WidthPolicy(WIDTHS, model()), [3.0, 3.6, 4.5], 99)
    policy.timed(2, 1, 0, 5000.0)
    assert WIDTHS[policy.choose(1, 0)] == 64


def test_a_slow_host_is_known_after_two_steps_and_frees_the_widths_that_were_not_tried() -> None:
    policy = fed(WidthPolicy(WIDTHS, model(w16=15.0, w64=20.0)), [3.0, 3.6, 4.5], 99, steps=10)
    for step_ms, width in ((40.0, 8), (41.0, 64)):
        policy.timed(0, 1, 0, step_ms)
        assert WIDTHS[policy.choose(1, 0)] == width


def test_one_pause_at_the_very_first_step_counts_for_nothing() -> None:
    policy = WidthPolicy(WIDTHS, model())
    for step_ms in (600.0, 6.0, 6.0):
        policy.timed(2, 1, 0, step_ms)
    assert policy.seen(1).ratios == [1.0, 1.0, 1.0]


def test_one_step_that_is_too_short_counts_for_nothing_and_two_end_what_was_known() -> None:
    policy = WidthPolicy(WIDTHS, model())
    for index in (0, 2) * 10:
        policy.timed(index, 1, 0, 30.0)
    policy.timed(2, 1, 0, 6.0)
    assert policy.seen(1).ratios == [6.0, 1.0, 5.0]
    policy.timed(2, 1, 0, 6.0)
    assert policy.seen(1).ratios == [1.0, 1.0, 1.0]


def test_the_widths_that_start_up_calls_better_are_tried_now_and_then() -> None:
    chosen = lived(WidthPolicy(WIDTHS, model()), {8: 12.0, 16: 12.0, 64: 12.0}, 600)[100:]
    assert min(chosen.count(8), chosen.count(16)) >= 3
    assert chosen.count(64) >= 500 * (1 - 1 / TRIAL) - 1
    right = lived(WidthPolicy(WIDTHS, model()), {8: 5.0, 16: 5.1, 64: 6.0}, 600)[100:]
    assert right == [64] * 500, "no need to where start-up was right"


@pytest.mark.parametrize(("requests", "context", "expected"), [(1, 0, 10), (2, 500, 25), (9, 1000, 30), (1, 2000, 30)])
def test_cost_is_a_line_over_the_context_and_a_step_over_the_requests(
    requests: int, context: int, expected: float
) -> None:
    cost = CostModel({(1, 8, 0): 10, (1, 8, 1000): 20, (4, 8, 0): 20, (4, 8, 1000): 30})
    assert cost.size(requests) == (1 if requests == 1 else 4)
    assert cost.step_ms(requests, 8, context) == expected


def test_the_model_is_plain_data() -> None:
    assert CostModel({(4, 8, 100): 1.23456}).as_json() == [{"requests": 4, "width": 8, "context": 100, "ms": 1.2346}]
