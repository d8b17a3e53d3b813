from pathlib import Path
from typing import Any

import pytest
import torch

from engines.reference.model.cache import Rows
from engines.reference.model.mask import causal
from engines.reference.model.target import plan_pass
from tests.engines.reference.conftest import load_pair
from tests.engines.reference.families import write_drafter, write_target
from tests.engines.reference.naive import Naive

SEQUENCES = ([3, 1, 4, 1, 5, 9, 2, 6, 5, 3], [2, 7, 1, 8, 2, 8])
SLIDING = {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 4}


@pytest.mark.parametrize("changes", [{}, {"qk_norm": False}, SLIDING], ids=["qk-norm", "no-qk-norm", "sliding"])
def test_draft_logits_equal_the_plain_computation(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Two sequences of different lengths, injected in two pieces each, then drafted for together."""
    target_folder = write_target(tmp_path / "target", "qwen3")
    drafter_folder = write_drafter(tmp_path / "drafter", **changes)
    target, drafter = load_pair(target_folder, drafter_folder)
    cache, rotary = target.new_cache(2, 20), target.rotary_table(20)
    draft_cache, draft_rotary = drafter.new_cache(2, 20), drafter.rotary_table(20)
    for slot, ids in enumerate(SEQUENCES):
        for start, stop in ((0, 4), (4, len(ids) - 1)):
            prefix, positions = torch.tensor([start]), torch.arange(start, stop).unsqueeze(0)
            among = causal(1, stop - start, prefix.device)
            step = plan_pass(target.config, cache, rotary, among, prefix, positions, slot, stop)
            _, features = target.forward(torch.tensor([ids[start:stop]]), step, drafter.config.target_layer_ids)
            assert features is not None
            drafter.inject(
                features.unsqueeze(0), draft_cache, draft_rotary, Rows.after(prefix, stop - start, slot, stop)
            )
    prefixes = [len(ids) - 1 for ids in SEQUENCES]
    seeds = torch.tensor([ids[-1] for ids in SEQUENCES])
    for _ in range(2):  # drafting leaves nothing behind that another draft sees
        found = drafter.draft(seeds, torch.tensor(prefixes), max(prefixes), draft_cache, draft_rotary)
    naive = Naive(drafter_folder, Naive(target_folder))
    for slot, ids in enumerate(SEQUENCES):
        torch.testing.assert_close(found[slot].double(), naive.draft(ids), rtol=1e-3, atol=1e-3)
