import contextlib
import io
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pydantic import ValidationError
from rich.console import Console

from engines.base import SpecCounters
from orchestrator import driver
from orchestrator.errors import InputError
from orchestrator.explore import Explorer, Field
from orchestrator.measure import Measurement, failed
from orchestrator.plan import Trial, make_plan
from orchestrator.prompts import load_prompts
from orchestrator.records import REQUEST_COLUMNS, Place, Probe, TrialState, request_frame
from orchestrator.search import Searcher, finalists, front, reach, with_finalists
from orchestrator.spec import SweepSpec
from orchestrator.store import RunStore
from orchestrator.times import now
from tests.orchestrator.acting import CHOICE, deployment
from tests.orchestrator.sample import request
from tests.orchestrator.sweeps import fake_sweep

SEARCH = {"budget_gpu_minutes": 10, "budget": [4, 128], "concurrency": [1, 8], "prompts": 8, "finalists": 2}


def spec(search: dict[str, Any] | None = None, **changes: Any) -> SweepSpec:
    workload = {"prompts": {"set": "orchestrate", "count": 24, "seed": 3}, "max_tokens": 12}
    fields: dict[str, Any] = {"arms": [{"method": "autoregressive"}], "workload": workload} | changes
    return SweepSpec.model_validate(fake_sweep(**fields, search=SEARCH | (search or {})))


def probe(budget: int, concurrency: int, user: float | None, every: float | None) -> Probe:
    return Probe(budget=budget, concurrency=concurrency, tok_s_user=user, tok_s_all=every)


def speeds(place: Place) -> tuple[float, float]:
    """A tree of 32 is the best; a user is slower the more there are."""
    width = 100 - 10 * abs(place.budget - 32) ** 0.5
    return width / (1 + 0.2 * place.concurrency), width * place.concurrency / (1 + 0.2 * place.concurrency)


@pytest.mark.parametrize(
    ("search", "complaint"),
    [
        ({"budget": [64, 8]}, "from its lowest to its highest"),
        ({"concurrency": [1, 32]}, "search.prompts 8 cannot keep 32 requests in flight"),
        ({"budget_gpu_minutes": 0}, "greater than 0"),
        ({"width": [1, 2]}, "Extra inputs"),
    ],
)
def test_a_search_that_cannot_run_is_refused(search: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        spec(search)


def test_one_arm_needs_a_search() -> None:
    with pytest.raises(ValidationError, match="two arms are the least"):
        SweepSpec.model_validate(fake_sweep(arms=[{"method": "autoregressive"}]))


def test_no_place_is_asked_for_twice_and_widths_are_no_powers_of_two_only() -> None:
    searcher = Searcher(spec(), [])
    asked = []
    for _ in range(12):
        place = searcher.ask()
        assert place is not None
        asked.append(place)
        searcher.tell(probe(place.budget, place.concurrency, *speeds(place)))
    assert len(set(asked)) == 12
    assert all(4 <= place.budget <= 128 and 1 <= place.concurrency <= 8 for place in asked)
    assert any(place.budget & (place.budget - 1) for place in asked)


def test_it_moves_to_where_it_is_fast() -> None:
    """After the random start, most widths asked for are near the best one."""
    searcher, asked = Searcher(spec({"concurrency": None}), []), []
    for _ in range(30):
        place = searcher.ask()
        if place is None:
            break
        asked.append(place)
        searcher.tell(probe(place.budget, place.concurrency, *speeds(place)))
    late = [place.budget for place in asked[15:]]
    assert sum(16 <= budget <= 64 for budget in late) > len(late) / 2


def test_a_search_ends_when_its_ranges_hold_nothing_else() -> None:
    searcher = Searcher(spec({"budget": [7, 8], "concurrency": None}), [probe(7, 1, 1.0, 1.0)])
    assert searcher.ask() == Place(8, 1)
    assert searcher.ask() is None


def test_a_failed_probe_is_no_value() -> None:
    searcher = Searcher(spec(), [probe(8, 1, None, None)])
    place = searcher.ask()
    assert place is not None
    searcher.tell(
        Probe(budget=place.budget, concurrency=place.concurrency, tok_s_user=None, tok_s_all=None, reason="x")
    )
    assert searcher.ask() not in (None, Place(8, 1), place)


FOUND = [
    probe(16, 1, 100, 100),
    probe(32, 2, 80, 150),
    probe(32, 8, 40, 300),
    probe(64, 2, 70, 140),
    probe(9, 4, 60, 220),
]


def test_the_front_and_its_finalists() -> None:
    edge = [FOUND[0], FOUND[1], FOUND[4], FOUND[2]]
    assert front([*FOUND, probe(5, 1, None, None)]) == edge
    assert finalists(FOUND, 2) == [FOUND[0], FOUND[2]]
    assert finalists(FOUND, 8) == edge
    assert finalists(FOUND, 1) == [FOUND[0]]


def test_finalists_join_the_arms_and_the_levels_of_the_sweep() -> None:
    arms = [{"method": "autoregressive"}, {"method": "ddtree", "budget": 16}]
    chosen = with_finalists(spec(arms=arms), FOUND)
    assert [arm.label() for arm in chosen.expanded_arms()] == ["autoregressive", "ddtree-budget=16", "ddtree-budget=32"]
    assert chosen.workload.concurrency == [1, 8]
    levels = {"prompts": {"count": 24}, "concurrency": [1, 2]}
    fixed = with_finalists(spec({"concurrency": None}, workload=levels), FOUND[:2])
    assert fixed.workload.concurrency == [1, 2]


def test_engines_must_serve_all_of_the_ranges() -> None:
    whole = reach(spec())
    assert [arm.budget for arm in whole.expanded_arms()] == [None, 4, 128]
    assert max(whole.workload.concurrency) == 8


def test_what_the_search_saw_compares_nothing() -> None:
    sweep = spec()
    prompts = load_prompts(sweep.workload.prompts)
    seen = {prompt.prompt_id for prompt in prompts.prompts[:8]}
    plan = make_plan(with_finalists(sweep, FOUND), "local", {"fake": deployment()}, prompts)
    compared = {prompt.prompt_id for trial in plan.trials for prompt in trial.prompts}
    assert len(compared) == 16
    assert not seen & compared


class Bench:
    """A search on scripted slots: a probe takes two of the minutes."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **search: Any) -> None:
        self.spec = spec(search)
        prompts = load_prompts(self.spec.workload.prompts).prompts[:8]
        self.field = Field(self.spec, self.spec.profiles["local"], {"fake": deployment()}, prompts)
        self.store = RunStore(folder / "search")
        self.ran: list[Trial] = []
        self.output = io.StringIO()
        self.broken = False
        self.label = self.name = "slot-0"
        monkeypatch.setattr(driver, "open_slots", self._open)
        monkeypatch.setattr(driver.time, "monotonic", self._clock)
        self._now = 0.0

    def _clock(self) -> float:
        return self._now

    @contextlib.asynccontextmanager
    async def _open(self, *_: object) -> AsyncIterator[list[Any]]:
        yield [self]

    async def run(self, trial: Trial) -> Measurement:
        self.ran.append(trial)
        self._now += 60.0 if self.broken else 120.0
        if self.broken:
            return failed(trial, "slot-0", "it broke", now())
        user, _ = speeds(Place(trial.arm.budget or 0, trial.concurrency))
        record = failed(trial, "slot-0", "", now()).record
        end = 1.0 + 100 / user
        whole = record.model_copy(update={"state": TrialState.VALID, "duration": end, "window": (1.0, end)})
        rows = [request(prompt_id=p.prompt_id, last=end, output_tokens=101) for p in trial.prompts[: trial.concurrency]]
        frame = request_frame([{name: row[name] for name in REQUEST_COLUMNS} for row in rows])
        return Measurement(whole, frame, pd.DataFrame(), SpecCounters(4, 28, 6, 10), None)

    def search(self) -> list[Probe]:
        return Explorer(self.field, self.store, CHOICE).run(Console(file=self.output, width=200))


def test_a_search_spends_its_minutes_and_writes_down_what_it_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch)
    probes = bench.search()
    assert len(bench.ran) == len(probes) == 5
    assert {trial.prompts for trial in bench.ran} == {bench.field.prompts}
    assert bench.store.probes() == probes
    for found in probes:
        user, _ = speeds(found.place)
        assert found.tok_s_user == pytest.approx(user, rel=1e-6)
        assert found.tok_s_all == pytest.approx(user * found.concurrency, rel=0.05)
    lines = bench.output.getvalue().splitlines()
    assert sum(line.startswith("probe of budget ") for line in lines) == 5
    assert any("10.0 of 10 GPU-minutes" in line for line in lines)
    assert lines[-1].startswith("search: 5 probes; the front is budget ")


def test_a_search_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Bench(tmp_path, monkeypatch)
    before = first.search()
    assert first.search() == before
    longer = Bench(tmp_path, monkeypatch, budget_gpu_minutes=16)
    assert first.field.digest != longer.field.digest
    after = longer.search()
    assert (after[:5], len(after)) == (before, 8)
    assert len({found.place for found in after}) == 8


def test_a_search_that_finds_nothing_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, monkeypatch)
    bench.broken = True
    with pytest.raises(InputError, match="it broke"):
        bench.search()


def test_optuna_is_imported_only_when_it_searches() -> None:
    code = "import sys, orchestrator.explore, orchestrator.sweep; print('optuna' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout == "False\n"
