from types import SimpleNamespace

import pytest
import torch

from ddtree.sglang import limits


def runner(context: int, columns: int, page_size: int = 1) -> SimpleNamespace:
    table = torch.zeros(2, columns, dtype=torch.int32)
    return SimpleNamespace(
        model_config=SimpleNamespace(context_len=context),
        req_to_token_pool=SimpleNamespace(req_to_token=table),
        page_size=page_size,
    )


@pytest.mark.parametrize(
    ("page_size", "columns", "served"),
    [(1, 2048 + 4 + 64, 2048 + 4 - 64), (64, 2048 + 2 * 64 + 63, 2048)],
)
def test_a_request_and_two_trees_after_it_fit_its_row(page_size: int, columns: int, served: int) -> None:
    """The rows as SGLang sizes them with pages of 1 and of 64."""
    subject = runner(2048, columns, page_size)
    assert limits.serve_context(subject, 64, None) == served
    assert subject.model_config.context_len == served
    longest = -(-(served + 2 * 64) // page_size) * page_size
    assert longest <= columns


def test_a_context_that_holds_no_tree_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 256 tokens at this budget, not 100"):
        limits.serve_context(runner(100, 100 + 4 + 256), 256, None)


@pytest.mark.parametrize("page_size", [1, 64])
@pytest.mark.parametrize("width", [8, 16, 64, 256])
def test_what_was_asked_for_is_served_whatever_the_tree(width: int, page_size: int) -> None:
    """SGLang's own sizes of a row, for the context that the plugin asks it for."""
    asked = limits.with_room(2048, None, 8192, width)
    columns = asked + max(4 + width, (2 * width + page_size - 1) * (page_size > 1))
    subject = runner(asked, columns, page_size)
    assert limits.serve_context(subject, width, 2048) == subject.model_config.context_len == 2048


def test_a_model_without_positions_to_spare_serves_less() -> None:
    assert limits.with_room(2048, None, 2080, 64) == 2080
    assert limits.serve_context(runner(2080, 2080 + 4 + 64), 64, 2048) == 2080 + 4 - 64
    assert limits.with_room(2048, None, 2048, 64) == 2048
    assert limits.with_room(4096, None, 2048, 64) == 4096, "for SGLang to refuse"


@pytest.mark.parametrize("positions", [2048, 2080, 8192])
def test_room_is_asked_for_once(positions: int) -> None:
    """SGLang's processes may resolve the arguments anew, from what was asked for or from what came of it."""
    once = limits.with_room(2048, None, positions, 64)
    assert limits.with_room(once, 2048, positions, 64) == once
    assert limits.with_room(2048, 2048, positions, 64) == once


def test_a_drafter_with_a_head_of_its_own_is_refused() -> None:
    plain = SimpleNamespace(draft_model=SimpleNamespace(), selector=None)
    limits.refuse_drafter(plain)
    with pytest.raises(ValueError, match="a candidate selector"):
        limits.refuse_drafter(SimpleNamespace(draft_model=SimpleNamespace(), selector=object()))
