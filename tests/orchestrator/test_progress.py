import io
import time

import pytest
from rich.console import Console

from orchestrator.measure import failed
from orchestrator.progress import Progress, label, summary
from tests.orchestrator.acting import trial


def test_time_left_comes_from_the_trials_of_this_session_and_the_slots() -> None:
    progress = Progress(Console(file=io.StringIO()), total=10, done=4)
    assert progress.seconds_left() is None
    subject = trial()
    for name in ("slot-0", "slot-1"):
        progress.slot(name, subject, "measuring", time.time())
    spoilt = failed(subject, "slot-0", "it broke", "")
    progress.finished(spoilt, seconds=10.0)
    progress.finished(spoilt, seconds=20.0)
    assert progress.seconds_left() == pytest.approx(15.0 * 4 / 2)


def test_a_trial_that_does_not_count_shows_its_reason() -> None:
    text = summary(failed(trial(), "slot-0", "engine fake [gone] ended", ""))
    assert text.startswith("block 0  at 1  subject ")
    assert text.endswith("failed: engine fake [gone] ended")


def test_a_terminal_shows_what_runs_where() -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=120)
    with Progress(console, total=10, done=0) as progress:
        assert progress.live
        progress.slot("slot-0", trial(), "measuring", time.time() - 65)
        console.print(progress._render())
    assert label(trial()) in output.getvalue()
    assert "measuring" in output.getvalue()
    assert "1:05" in output.getvalue()
    assert "0 of 10 trials" in output.getvalue()


def test_anything_else_gets_plain_lines() -> None:
    output = io.StringIO()
    with Progress(Console(file=output, width=120), total=10, done=3) as progress:
        assert not progress.live
        progress.say("a line [not markup]")
    assert output.getvalue() == "3 of 10 trials are stored; going on with the rest\na line [not markup]\n"
