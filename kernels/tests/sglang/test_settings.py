import pytest

from ddtree.sglang.settings import Settings


def test_everything_is_read() -> None:
    environ = {
        "DDTREE_BUDGET": "63",
        "DDTREE_CHAIN": "1",
        "DDTREE_ATTENTION": "stock",
        "DDTREE_BLOCK_SIZE": "8",
        "DDTREE_TOPK": "5",
        "DDTREE_REPORT": "/somewhere/report.json",
    }
    settings = Settings.of(environ)
    assert (settings.budget, settings.policy, settings.chain) == (63, "fixed", True)
    assert (settings.attention, settings.block_size, settings.candidates) == ("stock", 8, 5)
    assert settings.report is not None
    assert settings.report.name == "report.json"


def test_what_is_left_out_has_defaults() -> None:
    settings = Settings.of({"DDTREE_BUDGET": "63"})
    assert (settings.chain, settings.attention, settings.block_size, settings.candidates) == (False, "kernel", None, 32)
    assert Settings.of({"DDTREE_BUDGET": "7"}).candidates == 7


def test_auto_has_a_widest_budget() -> None:
    settings = Settings.of({"DDTREE_BUDGET": "auto", "DDTREE_MAX_BUDGET": "31"})
    assert (settings.policy, settings.budget) == ("auto", 31)


def test_a_step_is_never_narrower_than_a_block() -> None:
    assert Settings(4).width(8) == 8
    assert Settings(63).width(8) == 64


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({}, "DDTREE_BUDGET is not set, allowed is 1 to 255"),
        ({"DDTREE_BUDGET": "0"}, "DDTREE_BUDGET is '0', allowed is 1 to 255"),
        ({"DDTREE_BUDGET": "256"}, "allowed is 1 to 255"),
        ({"DDTREE_BUDGET": "-3"}, "DDTREE_BUDGET is '-3'"),
        ({"DDTREE_BUDGET": "auto"}, "DDTREE_MAX_BUDGET is not set"),
        ({"DDTREE_BUDGET": "7", "DDTREE_CHAIN": "yes"}, "DDTREE_CHAIN is 'yes', allowed are 0, 1"),
        ({"DDTREE_BUDGET": "7", "DDTREE_ATTENTION": "fa3"}, "allowed are kernel, stock"),
        ({"DDTREE_BUDGET": "7", "DDTREE_LADDER": "16,x"}, "DDTREE_LADDER is '16,x', allowed are widths of 2 to 256"),
        ({"DDTREE_BUDGET": "7", "DDTREE_LADDER": "16,"}, "as in 16,32"),
        ({"DDTREE_BUDGET": "7", "DDTREE_BLOCK_SIZE": "1"}, "allowed is 2 to 256"),
    ],
)
def test_bad_values_say_what_is_allowed(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings.of(environ)


def test_one_width_for_a_fixed_budget_and_a_ladder_for_an_automatic_one() -> None:
    assert Settings(63).widths(8) == [64]
    assert Settings(4).widths(8) == [8]
    assert Settings(63, "auto").widths(8) == [8, 16, 32, 64]
    assert Settings(47, "auto").widths(16) == [16, 32, 48]
    told = Settings.of({"DDTREE_BUDGET": "auto", "DDTREE_MAX_BUDGET": "127", "DDTREE_LADDER": "8,48,96,200"})
    assert told.widths(16) == [16, 48, 96, 128]
