import pytest

from dashboards.theme import DARK, MUTED, SURFACE, TEXT, ArmKey, arm_styles, exchange

ARMS = [ArmKey(f"ddtree-budget={b}", "ddtree", b) for b in (63, 7, 31, 15)]
ARMS += [ArmKey("dflash", "dflash", None), ArmKey("autoregressive", "autoregressive", None), ArmKey("x", "new", None)]


def luminance(color: str) -> float:
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_arms_are_in_reading_order_whatever_order_they_come_in() -> None:
    expected = ["autoregressive", "dflash", *(f"ddtree-budget={b}" for b in (7, 15, 31, 63)), "x"]
    assert list(arm_styles(ARMS)) == expected
    assert list(arm_styles(reversed(ARMS))) == expected


def test_every_arm_has_a_colour_of_its_own_on_both_pages() -> None:
    styles = arm_styles(ARMS).values()
    assert len({style.color for style in styles}) == len(ARMS)
    assert len({style.dark for style in styles}) == len(ARMS)


@pytest.mark.parametrize("method", ["autoregressive", "dflash", "ddtree", "ngram", "eagle3", "other"])
def test_arms_can_be_seen_on_both_pages(method: str) -> None:
    styles = arm_styles([ArmKey(f"{method}-{n}", method, n) for n in range(1, 6)]).values()
    assert all(contrast(style.color, SURFACE) >= 3 for style in styles)
    assert all(contrast(style.dark, DARK[SURFACE]) >= 3 for style in styles)


@pytest.mark.parametrize("color", [TEXT, MUTED])
def test_text_can_be_read_on_both_pages(color: str) -> None:
    assert contrast(color, SURFACE) >= 4.5
    assert contrast(DARK[color], DARK[SURFACE]) >= 4.5


def test_exchange_covers_every_arm() -> None:
    styles = arm_styles(ARMS)
    table = exchange(styles)
    assert all(table[style.color] == style.dark for style in styles.values())
    assert table[TEXT] == DARK[TEXT]
