from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import InputError
from orchestrator.spec import BlockSpec, load_spec
from tests.orchestrator.sweeps import fake_sweep, write_sweep


@pytest.mark.parametrize(
    ("blocks", "complaint"),
    [
        ({"count": "x"}, "blocks.count: Input should be a valid integer"),
        ({"count": 1}, "blocks.count: Input should be greater than or equal to 2"),
        ({"count": 65}, "blocks.count: Input should be less than or equal to 64"),
        ({"count": 8, "max": 4}, "blocks: `max` must be between `count`, 8, and 64, not 4"),
        ({"max": 65}, "blocks: `max` must be between `count`, 4, and 64, not 65"),
        ({"step": 0}, "blocks.step: Input should be greater than or equal to 1"),
        ({"restart": "always"}, "blocks.restart: Input should be a valid boolean"),
    ],
)
def test_bad_blocks_are_one_line(tmp_path: Path, blocks: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        load_spec(write_sweep(tmp_path, fake_sweep(blocks=blocks)))
    assert complaint in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_engines_are_kept_unless_fresh_ones_are_asked_for() -> None:
    assert (BlockSpec().restart, BlockSpec(restart=True).restart) == (False, True)
