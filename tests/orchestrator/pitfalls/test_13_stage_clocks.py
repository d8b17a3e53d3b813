"""Stage clocks that synchronise make what they measure slower: speed is taken from outside, stages only explain it."""

from dataclasses import replace

from engines.base import StageTimes
from orchestrator.stage_identity import disagreement
from orchestrator.validity import Limits
from tests.orchestrator.test_decision import decision, plan, records
from tests.orchestrator.test_validity import ANSWERS

STEPS = {"steps": 10.0, "draft": 1.0, "build": 0.0, "verify": 1.0, "commit": 0.0, "host": 0.0, "prefill": 0.0}
LIMIT = Limits().identity_error


def test_no_decision_rests_on_stage_times() -> None:
    sweep = plan()
    slow = [record.model_copy(update={"stages": STEPS}) for record in records(sweep)]
    with_clocks, without = decision(sweep, trials=slow), decision(sweep)
    assert with_clocks.points == without.points
    assert [s.output_tok_s for s in with_clocks.summaries] == [s.output_tok_s for s in without.summaries]
    assert with_clocks.summaries[0].step_ms != without.summaries[0].step_ms


def test_stages_that_took_longer_than_the_answers_are_not_believed() -> None:
    """Five tokens in 4 s of which 1 came with the first chunk; the first draft forward, left out of DFlash's own
    measurement, would show here, too."""
    answers = [replace(answer, first=1.0, last=5.0, first_chunk_tokens=1) for answer in ANSWERS]
    assert disagreement(answers, StageTimes(steps=8, draft=3.0, verify=5.0), LIMIT) == ""
    slower = disagreement(answers, StageTimes(steps=8, draft=8.0, verify=5.0), LIMIT)
    assert slower == (
        "a step took 1000.0 ms by the answers and 1625.0 ms by the server's stages (draft 1000.0, verify 625.0): "
        "-38 % (+- 0), allowed 5 %"
    )
    missing = disagreement(answers, StageTimes(steps=8, verify=5.0), LIMIT)
    assert missing.endswith("(verify 625.0): +60 % (+- 0), allowed 5 %")
