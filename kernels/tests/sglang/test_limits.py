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
    limits.shorten_context(subject, 64)
    assert subject.model_config.context_len == served
    longest = -(-(served + 2 * 64) // page_size) * page_size
    assert longest <= columns


def test_a_context_that_holds_no_tree_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 256 tokens at this budget, not 100"):
        limits.shorten_context(runner(100, 100 + 4 + 256), 256)


def test_a_drafter_with_a_head_of_its_own_is_refused() -> None:
    plain = SimpleNamespace(draft_model=SimpleNamespace(), selector=None)
    limits.refuse_drafter(plain)
    with pytest.raises(ValueError, match="a candidate selector"):
        limits.refuse_drafter(SimpleNamespace(draft_model=SimpleNamespace(), selector=object()))
