from pathlib import Path

import pytest

from orchestrator.cards import progress
from orchestrator.records import TrialState
from orchestrator.spec import SweepSpec
from orchestrator.store import RunStore
from tests.dashboards.synthetic import WINNER, synthetic_run
from tests.orchestrator.sample import journal_entry


@pytest.fixture
def fresh(tmp_path: Path) -> RunStore:
    return synthetic_run(tmp_path / "winner-synthetic", WINNER)


def test_progress_counts_each_trial_once_and_names_what_runs() -> None:
    entries = [
        journal_entry("a", TrialState.STARTED, "slot-0"),
        journal_entry("a", TrialState.INVALID, "slot-0", 4.0),
        journal_entry("a", TrialState.STARTED, "slot-0"),
        journal_entry("a", TrialState.VALID, "slot-0", 6.0),
        journal_entry("b", TrialState.STARTED, "slot-0"),
        journal_entry("c", TrialState.FAILED, "slot-1", 2.0),
    ]
    found = progress(None, entries)
    assert (found.valid, found.invalid, found.failed, found.planned) == (1, 0, 1, None)
    assert found.doing == ["slot-0: arm, block 0, 1 at once"]


def test_the_time_left_is_that_of_the_trials_left(fresh: RunStore) -> None:
    spec = fresh.sweep(SweepSpec)
    entries = [journal_entry(str(n), TrialState.VALID, "slot-0", 10.0) for n in range(4)]
    found = progress(spec, [*entries, journal_entry("next", TrialState.STARTED, "slot-0")])
    assert found.planned == 24
    assert found.seconds_left == pytest.approx(200.0)
