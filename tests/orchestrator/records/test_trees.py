import pytest
from pydantic import ValidationError

from orchestrator.records import TreeStep


@pytest.mark.parametrize(
    ("nodes", "accepted", "says"),
    [
        ([], [0], "no tree"),
        ([(-1, 0), (0, 1), (2, 2)], [0], "no tree"),
        ([(-1, 0), (-1, 1)], [0], "no tree"),
        ([(-1, 0), (0, 2)], [0], "depths"),
        ([(-1, 0), (0, 1), (0, 1)], [0, 1, 2], "no path"),
        ([(-1, 0), (0, 1)], [1], "no path"),
        ([(-1, 0), (0, 1)], [0, 3], "no path"),
        ([(-1, 0), (0, 1)], [], "no path"),
    ],
)
def test_steps_that_are_no_trees_are_refused(nodes: list[tuple[int, int]], accepted: list[int], says: str) -> None:
    rows = [{"token_id": 1, "text": "", "parent": p, "depth": d, "log_prob": 0.0} for p, d in nodes]
    with pytest.raises(ValidationError, match=says):
        TreeStep.model_validate({"nodes": rows, "accepted": accepted, "bonus_id": 1, "bonus_text": ""})
