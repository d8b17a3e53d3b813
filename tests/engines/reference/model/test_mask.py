import torch
from hypothesis import given
from hypothesis import strategies as st

from engines.reference.model.mask import additive_masks, bidirectional, causal


@given(
    prefixes=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    width=st.integers(1, 5),
    window=st.integers(1, 7),
    group=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_masks_equal_a_rule_applied_cell_by_cell(
    prefixes: list[int], width: int, window: int, group: int, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    batch, end = len(prefixes), max(prefixes) + width
    among = torch.rand(batch, width, width, generator=draw) < 0.5
    depths = torch.randint(0, width, (batch, width), generator=draw)
    positions = torch.tensor(prefixes)[:, None] + depths
    masks = additive_masks(among, torch.tensor(prefixes), positions, end, (None, window), group, torch.float32)
    assert set(masks) == {None, window}
    for limit, mask in masks.items():
        assert mask.shape == (batch, 1, width * group, end)
        for b, prefix in enumerate(prefixes):
            for row in range(width * group):
                query = row // group
                for key in range(end):
                    new = key - prefix
                    seen = key < prefix or (new < width and bool(among[b, query, new]))
                    place = key if key < prefix else int(positions[b, min(new, width - 1)])
                    near = limit is None or int(positions[b, query]) - place < limit
                    assert mask[b, 0, row, key] == (0.0 if seen and near else float("-inf"))


def test_who_sees_whom_among_new_tokens() -> None:
    device = torch.device("cpu")
    assert causal(1, 3, device)[0].tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert bidirectional(2, 2, device).all()
