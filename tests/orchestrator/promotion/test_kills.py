import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.promotion.journal import FULL
from orchestrator.promotion.release import Release
from tests.orchestrator.processes import eventually
from tests.orchestrator.promotion.bench import Bench, opened
from tests.orchestrator.promotion.traffic import tell, traffic

KILLED = ("-m", "tests.orchestrator.promotion.killed")
BEFORE_THE_TURN = [
    "open",
    "done old release",
    "done upload",
    "done start",
    "done ready",
    "done smoke",
    "routed",
    "done canary 20 %",
    "begun full",
]
AFTER_IT = ["done full", "done drain", "closed"]


@pytest.fixture
def bench(tmp_path: Path, made: dict[str, Release]) -> Iterator[Bench]:
    with opened(tmp_path) as found:
        found.promote(made["first"])
        yield found


def command(release: Release) -> list[str]:
    return ["promote", release.id, "--to", "bench", "--yes", "--releases", str(release.folder.parent)]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_between_any_two_steps_the_same_command_goes_on(
    bench: Bench, made: dict[str, Release], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = made["first"], made["second"]
    with traffic(bench.port, at_once=2) as load:
        for moment in [*BEFORE_THE_TURN, *AFTER_IT]:
            running = bench.command(moment, *command(second), through=KILLED)
            shown, _ = running.communicate(timeout=120)
            assert running.returncode == -signal.SIGKILL, f"{moment}: {shown}"
            load.wait_for(3)
            if moment in BEFORE_THE_TURN:
                assert bench.serving() == first.id, moment
                assert bench.shares()[first.id] >= 80, moment
            if moment in AFTER_IT:
                assert bench.shares() == {second.id: 100.0}, moment
        last = bench.command(*command(second))
        shown, _ = last.communicate(timeout=120)
        assert last.returncode == 0, shown
        assert "serves already" in shown
        load.wait_for(3)
    tell(capsys, f"a promotion killed {len(BEFORE_THE_TURN) + len(AFTER_IT)} times", load)
    assert load.failures == []
    assert bench.serving() == second.id
    assert len(bench.units()) == 2


@pytest.mark.slow
def test_a_promotion_that_was_killed_is_undone_by_rollback(bench: Bench, made: dict[str, Release]) -> None:
    first, second = made["first"], made["second"]
    running = bench.command("routed", *command(second), through=KILLED)
    running.communicate(timeout=120)
    assert bench.shares() == {first.id: 80.0, second.id: 20.0}
    assert first.id in bench.rollback()
    assert (bench.serving(), bench.shares()) == (first.id, {first.id: 100.0})
    assert [name for name in bench.units() if second.id in name] == []
    assert bench.standing().change is None


@pytest.mark.slow
def test_an_undoing_that_was_killed_is_finished(bench: Bench, made: dict[str, Release]) -> None:
    first, second = made["first"], made["second"]
    with bench.site({"wrong_after": 3}):
        running = bench.command("failed smoke", *command(second), through=KILLED)
        running.communicate(timeout=120)
    change = bench.standing().change
    assert change is not None
    assert "not the run's" in change.failed
    assert second.name in bench.promote(second)
    assert "cut off and is undone first" in bench.shown
    assert bench.serving() == second.id
    assert first.id in bench.standing().known


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_undoes_and_says_so(bench: Bench, made: dict[str, Release], stop: signal.Signals) -> None:
    first, second = made["first"], made["second"]
    with bench.site(canary=[{"share": 20, "for_s": 600}]):
        running = bench.command(*command(second))
        try:
            assert eventually(lambda: "begun" in _last(bench) and "canary" in _last(bench), 60)
            running.send_signal(stop)
            shown, _ = running.communicate(timeout=60)
        finally:
            running.kill()
    assert running.returncode == 130, shown
    assert "interrupted" in shown
    assert f"undone: {first.id} serves" in shown
    assert (bench.serving(), bench.shares(), bench.standing().change) == (first.id, {first.id: 100.0}, None)


@pytest.mark.slow
def test_a_rollback_that_was_killed_goes_on(
    bench: Bench, made: dict[str, Release], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = made["first"], made["second"]
    bench.promote(second)
    with traffic(bench.port, at_once=2) as load:
        for moment, serving in [("open", second), ("begun full", second), ("done full", first)]:
            running = bench.command(moment, "rollback", "bench", "--yes", through=KILLED)
            shown, _ = running.communicate(timeout=60)
            assert running.returncode == -signal.SIGKILL, f"{moment}: {shown}"
            assert bench.shares() == {serving.id: 100.0}, moment
            load.wait_for(3)
        assert first.name in bench.promote(first)
        load.wait_for(3)
    tell(capsys, "a rollback killed 3 times", load)
    assert load.failures == []
    assert [name for name in bench.units() if second.id in name] == []
    assert FULL not in bench.shown


def _last(bench: Bench) -> str:
    return (bench.root / "journal.jsonl").read_text().splitlines()[-1]
