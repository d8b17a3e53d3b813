import io

from rich.console import Console

from orchestrator.cli.tables import summary_table
from orchestrator.records import Pause
from tests.orchestrator.test_decision import decision, plan

PAUSED = {"paused_trials": 1, "longest_pause": Pause(seconds=0.597, window=1.478)}


def shown(**doubts: object) -> str:
    found = decision(plan())
    first, *rest = found.summaries
    output = io.StringIO()
    summaries = [first.model_copy(update=doubts), *rest]
    Console(file=output, width=200).print(summary_table(found.model_copy(update={"summaries": summaries})))
    return " ".join(output.getvalue().split())


def test_doubts_stand_under_the_table() -> None:
    assert "flat" not in shown()
    words = shown(unsettled_trials=1, identity_error=0.2, **PAUSED)
    assert "autoregressive at 1: in 1 of 4 trials the speed was not flat yet when the warm-up ended" in words
    assert "autoregressive at 1: step time over acceptance length is 20.0 % off the TPOT measured" in words
    assert "autoregressive at 1: in 1 of 4 trials nothing arrived for 0.60 s of 1.48 s while requests were in" in words
