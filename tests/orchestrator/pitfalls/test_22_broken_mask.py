"""A stale verify mask let draft tokens confirm themselves: acceptance 2.06 to 3.32, 740 tok/s, and nonsense for text.

It was the fastest arm. The gate stands before every ranking, the looks between rounds included.
"""

import pandas as pd

from engines.base import Ranking
from orchestrator.decision import decide, failed_gates
from orchestrator.equivalence import compare_texts, judge
from orchestrator.looks import take_look
from orchestrator.plan import Plan
from orchestrator.records import GateResult, Look, Verdict
from tests.orchestrator.test_decision import GAINS, plan, records, requests

BROKEN = "ddtree-budget=15"


def measured(sweep: Plan) -> pd.DataFrame:
    """The broken arm is twice as fast as any other and says something else."""
    rows = requests(sweep, GAINS | {BROKEN: 2.8})
    nonsense = pd.Series([[1, 9, 9]] * len(rows), index=rows.index)
    return rows.assign(token_ids=rows["token_ids"].where(rows["arm"] != BROKEN, nonsense))


def gated(sweep: Plan, rows: pd.DataFrame) -> list[GateResult]:
    agreements = compare_texts(rows, sweep.arms, "autoregressive")
    rankings = {c: Ranking((2, 9), (-0.1, -4.0)) for agreement in agreements for c in agreement.candidates}
    return judge(agreements, rankings, 0.0)[0]


def test_the_fastest_arm_is_not_ranked_when_its_text_is_not_the_targets() -> None:
    sweep = plan()
    rows = measured(sweep)
    found = decide(sweep, records(sweep), rows, gated(sweep, rows))
    assert found.arm == "ddtree-budget=7"
    assert "equivalence gate failed" in found.points[0].excluded[BROKEN]
    blind = [gate.model_copy(update={"passed": True}) for gate in gated(sweep, rows)]
    assert decide(sweep, records(sweep), rows, blind).arm == BROKEN


def test_it_leads_no_look_and_makes_no_arm_hopeless() -> None:
    sweep = plan(blocks={"count": 8, "max": 12, "seed": 5})
    rows = measured(sweep)
    done = [record for record in records(sweep) if record.block < 8]

    def look(failed: dict[str, str]) -> Look:
        taken = take_look(sweep, 1, [], done, rows[rows["block"] < 8], failed)
        assert isinstance(taken, Look)
        return taken

    guarded = look(failed_gates(sweep, gated(sweep, rows)))
    assert guarded.candidate == "ddtree-budget=7"
    assert list(guarded.dropped) == [BROKEN]
    assert look({}).candidate == BROKEN
    assert decide(sweep, records(sweep), rows, gated(sweep, rows)).verdict is Verdict.WINNER
