"""One counter for plain decoding and another for speculation (Spec-Bench's speed.py): here both arms have the same."""

import pandas as pd
import pytest

from engines.base import Arm, Method
from orchestrator.metrics import measure, summarise
from orchestrator.selection import measurements
from orchestrator.spec import SloSpec
from orchestrator.statistics import Bootstrap
from tests.orchestrator.sample import frame, request

PLAIN = Arm("plain", "reference", Method.AUTOREGRESSIVE)
TREE = Arm("tree", "reference", Method.DDTREE, budget=15)


def streams() -> pd.DataFrame:
    """The same 101 tokens in the same two seconds: one a chunk in one arm, four a chunk in the other."""
    rows = []
    for arm, size in ((PLAIN, 1), (TREE, 4)):
        steps = 100 // size
        sizes = {"chunks": 1 + steps, "chunk_tokens": [1, *[size] * steps], "verify_steps": steps}
        sizes |= {"accepted": (size - 1) * steps, "output_tokens": 101, "emitted": 100}
        rows += [request(arm=arm.name, prompt_id=p, block=i % 2, **sizes) for i, p in enumerate("abcd")]
    return frame(*rows)


def test_equal_streams_are_equally_fast_however_they_are_chunked() -> None:
    found = measurements(measure(streams()), (PLAIN, TREE))
    assert found.log_ratios(0, 1) == pytest.approx([0.0] * 4)
    plain, tree = summarise(streams(), [], (PLAIN, TREE), SloSpec(), Bootstrap(0.95, 1000, 0))
    assert tree.output_tok_s.estimate == pytest.approx(plain.output_tok_s.estimate)
    assert tree.tpot_ms.estimate == pytest.approx(plain.tpot_ms.estimate) == pytest.approx(20.0)


def test_counting_chunks_in_one_arm_would_not_be() -> None:
    measured = measure(streams())
    wrong = measured["decode"] / (measured["chunks"] - 1)
    assert wrong[measured["arm"] == "tree"].mean() == pytest.approx(4 * wrong[measured["arm"] == "plain"].mean())
