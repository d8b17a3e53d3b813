import pytest

from orchestrator.errors import InputError
from orchestrator.records import TrialState
from orchestrator.store import RunStore
from tests.orchestrator.sample import journal_entry
from tests.orchestrator.store.making import DIGEST


def test_journal_survives_a_line_cut_in_the_middle(store: RunStore) -> None:
    store.journal(journal_entry(DIGEST, TrialState.STARTED))
    with (store.folder / "journal.jsonl").open("ab") as handle:
        handle.write(b'{"time": "2026-')
    store.journal(journal_entry(DIGEST, TrialState.VALID))
    assert [e.state for e in store.entries()] == [TrialState.STARTED, TrialState.VALID]


def test_a_whole_line_that_says_something_else_is_an_error(store: RunStore) -> None:
    store.journal(journal_entry(DIGEST, TrialState.STARTED))
    with (store.folder / "journal.jsonl").open("a") as handle:
        handle.write('{"time": "2026", "colour": "red"}\n')
    with pytest.raises(InputError, match=r"journal\.jsonl:2: "):
        store.entries()
