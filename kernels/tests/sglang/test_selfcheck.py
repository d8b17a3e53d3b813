"""Start-up on a toy in SGLang's place: the self-check passes, and sees what is spoiled; costs are measured."""

from collections.abc import Callable
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ddtree.sglang import commit, trees
from kernels.tests.sglang.toy import NewerBatch, Worker, stand_in


@pytest.fixture
def selfcheck(monkeypatch: pytest.MonkeyPatch) -> Any:
    stand_in(monkeypatch)
    from ddtree.sglang import selfcheck

    return selfcheck


@pytest.mark.parametrize(
    ("block", "widths", "captured", "page"),
    [(4, [4], [1, 2, 4], 1), (4, [4, 9], [1, 4], 16), (6, [20], [], 1), (4, [70], [2], 1)],
    ids=["bare block", "two lanes, pages", "no graphs", "two words of bits"],
)
def test_a_sound_server_passes(selfcheck: Any, block: int, widths: list[int], captured: list[int], page: int) -> None:
    worker = Worker(block, widths, captured, requests=5, page=page)
    assert selfcheck.run(worker) == "passed"
    assert max(worker.accepted) >= 3, "paths were accepted, compacted and built upon"
    assert 1.5 < sum(worker.accepted) / len(worker.accepted) <= block
    assert not worker.model_runner.req_to_token_pool.req_to_token.any(), "nothing is left in the table"


def test_a_prefill_says_its_length_by_the_newer_name_too(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, NewerBatch)
    from ddtree.sglang import selfcheck

    assert selfcheck.run(Worker(4, [8], [1, 2], requests=3)) == "passed"


@pytest.mark.parametrize("shared", [0, 32, 37])
def test_start_ups_own_requests_begin_with_a_page_and_share_whole_ones(selfcheck: Any, shared: int) -> None:
    from ddtree.sglang.scratch import Scratch

    scratch = Scratch(Worker(4, [8], [1], requests=5, page=16), 3, 20, shared)  # type: ignore[arg-type]
    assert scratch.slots.shape == (3, shared + 20)
    assert torch.equal(scratch.slots % 16, torch.arange(shared + 20).expand(3, -1) % 16)
    whole = shared // 16 * 16
    assert (scratch.slots[:, :whole] == scratch.slots[0, :whole]).all()
    own = [set((row[whole:] // 16).tolist()) for row in scratch.slots]
    assert not own[0] & own[1] | own[1] & own[2] | own[0] & own[2]


def _seen_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    _after_growing(monkeypatch, lambda verify, _: verify.tree.ancestors.fill_(-1))


def _stale(monkeypatch: pytest.MonkeyPatch) -> None:
    _after_growing(monkeypatch, lambda verify, before: verify.tree.ancestors.copy_(before))


def _one_position_late(monkeypatch: pytest.MonkeyPatch) -> None:
    _after_growing(monkeypatch, lambda verify, _: verify.positions.add_((verify.tree.depths > 1).long()))


def _after_growing(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Any, Any], object]) -> None:
    grow = trees.Verify.grow

    def grown(self: Any, *arguments: Any) -> None:
        before = self.tree.ancestors.clone()
        grow(self, *arguments)
        spoil(self, before)

    monkeypatch.setattr(trees.Verify, "grow", grown)


def _not_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "compact_slots", lambda *_: None)


def _padding_writes_to_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a padded batch shows it: the row without a request has another one's slots."""
    verify = Worker._verify

    def padded(self: Worker, tree: Any, row: int, requests: Any) -> torch.Tensor:
        if row >= requests.count:
            table = self.model_runner.req_to_token_pool.req_to_token
            tree.slots[row] = table[requests.pool_rows[0], : tree.width].long()
        return verify(self, tree, row, requests)

    monkeypatch.setattr(Worker, "_verify", padded)


def _workspace_outgrown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs hold a workspace that a long prefill replaces; it stays readable until free memory is given back."""
    forward, inject, state = Worker.forward, Worker.inject, SimpleNamespace(replaced=False, gone=False)

    def prefill(self: Worker, batch: Any) -> Any:
        rows = max(rows for lane in self.lanes for rows in lane.stages.captured)
        state.replaced |= batch.extend_num_tokens > 2 * rows * self.block_size
        return forward(self, batch)

    def injected(self: Worker, features: torch.Tensor, slots: torch.Tensor, *rest: Any) -> None:
        inject(self, features, slots, *rest)
        if state.gone:
            self.cache[slots[:, 0], 0, 0] += 1.0

    def give_back() -> None:
        state.gone = state.replaced

    monkeypatch.setattr(Worker, "forward", prefill)
    monkeypatch.setattr(Worker, "inject", injected)
    monkeypatch.setattr(torch.cuda, "empty_cache", give_back)


FAULTS = [_workspace_outgrown, _seen_by_all, _stale, _one_position_late, _not_compacted, _padding_writes_to_a_request]


@pytest.mark.parametrize("width", [8, 16])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__.strip("_"))
def test_a_spoiled_server_does_not_serve(
    selfcheck: Any, monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None], width: int
) -> None:
    fault(monkeypatch)
    with pytest.raises(selfcheck.SelfCheckError, match=f"self-check failed at width {width}, batch size"):
        selfcheck.run(Worker(4, [width], [1, 4], requests=5))


def test_near_ties_of_rounding_pass_and_a_token_that_is_far_off_does_not(selfcheck: Any) -> None:
    rounding = selfcheck.ROUNDING[torch.bfloat16]
    distances = torch.zeros(3, 10)
    distances[1, 3] = 0.38  # what bfloat16 showed on a GPU
    distances[1, 6:] = distances[2, 4:] = float("nan")
    assert selfcheck.judge(distances, rounding, "here") == pytest.approx(0.063, abs=0.001)
    for place, value in (((0, 2), 1.1), ((2, 0), float("inf"))):
        spoiled = distances.clone()
        spoiled[place] = value
        with pytest.raises(selfcheck.SelfCheckError, match="at here"):
            selfcheck.judge(spoiled, rounding, "here")
    with pytest.raises(selfcheck.SelfCheckError, match=r"the tokens of request 1 lie 0\.150"):
        selfcheck.judge(torch.tensor([[0.0, 0.0], [0.0, 0.3]]), rounding, "here")


def test_a_restless_target_is_allowed_more_up_to_a_limit(selfcheck: Any) -> None:
    assert selfcheck.tolerance(0.05, 0.001) == 0.05
    assert selfcheck.tolerance(0.05, 0.02) == 0.08
    assert selfcheck.tolerance(0.05, 9.0) == pytest.approx(0.1)


@pytest.mark.parametrize(("page", "contexts"), [(1, {64, 150}), (16, {64, 144}), (64, {64})])
def test_costs_are_measured_for_every_lane_and_captured_size(
    selfcheck: Any, monkeypatch: pytest.MonkeyPatch, page: int, contexts: set[int]
) -> None:
    from ddtree.sglang import profile

    spans = cycle([90.0, 8.0, 12.0, 30.0])  # three rounds in which somebody else had the GPU
    clock = SimpleNamespace(record=lambda: None, synchronize=lambda: None, elapsed_time=lambda _: next(spans))
    monkeypatch.setattr(torch.cuda, "Event", lambda **_: clock)
    worker = Worker(4, [4, 9], [1, 4], requests=5, page=page)
    step, asked = worker.step, []
    worker.step = lambda requests, lane: (asked.append(requests.last.tolist()), step(requests, lane))[1]  # type: ignore[method-assign]
    points = profile.measure(worker).points  # type: ignore[arg-type]
    assert {len(tokens) for tokens in asked} == {1, 4}
    assert all(len(set(tokens)) == len(tokens) for tokens in asked), "the same token chooses the same experts"
    assert {(size, width) for size, width, _ in points} == {(1, 4), (4, 4), (1, 9), (4, 9)}
    assert {context for _, _, context in points} == contexts
    assert set(points.values()) == {8.0 / profile.TIMED}
    assert not worker.model_runner.req_to_token_pool.req_to_token.any()
