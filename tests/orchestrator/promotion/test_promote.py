from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import InputError
from orchestrator.promotion import canarying, replicas, smoke
from orchestrator.promotion.errors import PromotionError
from orchestrator.promotion.lock import held
from orchestrator.promotion.release import Release
from orchestrator.promotion.smoke import WARMUP
from orchestrator.promotion.state import state
from tests.orchestrator.processes import eventually
from tests.orchestrator.promotion.bench import Bench, inside, opened
from tests.orchestrator.promotion.traffic import tell, traffic


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory, made: dict[str, Release]) -> Iterator[Bench]:
    """A target where the first release serves. Tests leave it so."""
    with opened(tmp_path_factory.mktemp("serving")) as found:
        found.promote(made["first"])
        yield found


@pytest.mark.slow
def test_under_constant_traffic_no_request_is_dropped(
    bench: Bench, made: dict[str, Release], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = made["first"], made["second"]
    assert first.name in bench.promote(first)
    with traffic(bench.port) as load:
        load.wait_for(10)
        assert second.name in bench.promote(second)
        load.wait_for(10)
        assert (bench.serving(), bench.shares()) == (second.id, {second.id: 100.0})
        standing = bench.standing()
        assert standing.previous is not None
        assert standing.previous.release == first.id
        assert standing.change is None
        assert "serves already" in bench.promote(second)
        assert "was warm" not in bench.shown
        assert first.id in bench.rollback()
        assert "was warm" in bench.shown
        load.wait_for(10)
    tell(capsys, "a promotion and a rollback", load)
    assert load.failures == []
    assert bench.serving() == first.id
    assert [name for name in bench.units() if second.id in name] == []
    with pytest.raises(InputError, match="no release before"):
        bench.rollback()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("defects", "changes", "reason"),
    [
        ({"wrong_after": 3}, {}, "smoke: .*the answers are not the run's: 8 of 8 texts differ"),
        ({"tokens_per_step": 1}, {}, "smoke: .*acceptance length 1.00 lies below the run's interval"),
        ({"step_ms": 60.0}, {"smoke": {"tpot_tolerance": 0.5}}, "smoke: .*TPOT .* ms lies above the run's interval"),
        ({"fail": "start"}, {}, "ready: the replica on local:[0-9]+ ended.*scripted failure at start"),
        ({"fail": "never_ready"}, {"ready_s": 3}, "ready: the replica .* is not ready after 3 s"),
        ({"fail": "identity"}, {}, "ready: the replica .* the server says method"),
    ],
)
def test_a_release_that_is_not_as_measured_never_gets_traffic(
    serving: Bench, made: dict[str, Release], defects: dict[str, Any], changes: dict[str, Any], reason: str
) -> None:
    first, second = made["first"], made["second"]
    with pytest.raises(PromotionError, match=f"{reason}.*{first.id} serves as before"):
        serving.promote(second, defects, **changes)
    assert (serving.serving(), serving.shares()) == (first.id, {first.id: 100.0})
    assert serving.standing().change is None
    assert [name for name in serving.units() if second.id in name] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failure", "reason"),
    [("slow", r"canary 20 %: worse than .* by more than 90 %: TPOT"), ("error", r"canary 20 %: a probe failed on")],
)
def test_a_canary_that_gets_worse_is_taken_back(
    serving: Bench, made: dict[str, Release], failure: str, reason: str
) -> None:
    first, second = made["first"], made["second"]
    asked_before = WARMUP + len(second.record.smoke)
    with pytest.raises(PromotionError, match=f"{reason}.*{first.id} serves as before"):
        serving.promote(second, {"fail": failure, "fail_after": asked_before})
    assert (serving.serving(), serving.shares()) == (first.id, {first.id: 100.0})
    assert [name for name in serving.units() if second.id in name] == []


@pytest.mark.slow
def test_ctrl_c_in_the_canary_leaves_the_old_release(
    serving: Bench, made: dict[str, Release], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = made["first"], made["second"]
    during: list[dict[str, float]] = []

    async def interrupted(*_: object) -> None:
        during.append(serving.shares())
        raise KeyboardInterrupt

    monkeypatch.setattr(canarying, "_round", interrupted)
    with pytest.raises(KeyboardInterrupt):
        serving.promote(second)
    assert during == [{first.id: 80.0, second.id: 20.0}]
    assert serving.shares() == {first.id: 100.0}
    assert (serving.serving(), serving.standing().change) == (first.id, None)


def test_two_at_once_one_gets_a_clear_message(serving: Bench, made: dict[str, Release]) -> None:
    with serving.site() as site, held(site.first, site.lock, site.name):
        with pytest.raises(InputError, match="bench: a change is going on"):
            serving.promote(made["second"])
        with pytest.raises(InputError, match="bench: a change is going on"):
            serving.rollback()
    assert serving.serving() == made["first"].id


@pytest.mark.slow
def test_after_a_reboot_the_old_release_is_brought_back_first(bench: Bench, made: dict[str, Release]) -> None:
    first, second = made["first"], made["second"]
    bench.promote(first)
    bench.kill_replicas(first.id)
    with bench.site() as site:
        site.router.close()
    bench.promote(second)
    bench.kill_replicas(first.id)
    assert first.id in bench.rollback()
    assert "was started" in bench.shown
    with traffic(bench.port) as load:
        load.wait_for(5)
    assert load.failures == []


@pytest.mark.slow
def test_a_release_that_was_tampered_with_on_the_target_is_not_started(bench: Bench, made: dict[str, Release]) -> None:
    first, second = made["first"], made["second"]
    bench.promote(first)
    bench.promote(second)
    bench.kill_replicas(first.id)
    decision = bench.root / "releases" / first.id / "decision.json"
    decision.chmod(0o644)
    decision.write_text(decision.read_text() + " ")
    with pytest.raises(PromotionError, match=r"ready: .*tampered with: decision\.json.*never started"):
        bench.rollback()
    assert (bench.serving(), bench.shares()) == (second.id, {second.id: 100.0})


@pytest.mark.slow
def test_what_is_no_longer_warm_stops_by_itself(bench: Bench, made: dict[str, Release]) -> None:
    first, second = made["first"], made["second"]
    bench.promote(first)
    bench.promote(second, warm_for_s=10)
    folder = bench.unit_folder(first.id)
    assert len(inside(folder)) == 1
    assert eventually(lambda: not inside(folder), 30), "and nobody ran anything"
    told = [("serving", True), ("stopped", False)]
    with bench.site() as site:  # its time is written a moment after the supervisor was given the rest of it
        assert eventually(lambda: [(one.part, one.healthy) for one in state(site).releases] == told, 5)
    with pytest.raises(PromotionError, match=r"smoke: .*another text"), monkeypatched_smoke():
        bench.promote(first)
    assert eventually(lambda: not inside(folder), 30), "what was started for it and undone is stopped again"
    assert first.id in bench.rollback()
    assert "was started" in bench.shown
    assert (bench.serving(), len(inside(folder))) == (first.id, 1)


@pytest.mark.slow
def test_a_release_that_is_taken_back_while_warm_serves_for_good(bench: Bench, made: dict[str, Release]) -> None:
    first, second = made["first"], made["second"]
    bench.promote(first)
    bench.promote(second, warm_for_s=600)
    folder = bench.unit_folder(first.id)
    until = float((folder / "until").read_text())
    pid = bench.keeper(folder)["server"]["pid"]
    with pytest.raises(PromotionError, match=r"smoke: .*another text"), monkeypatched_smoke():
        bench.promote(first, warm_for_s=600)
    assert float((folder / "until").read_text()) == pytest.approx(until, abs=2), "what was undone stays warm as it was"
    assert first.id in bench.rollback()
    assert "was warm" in bench.shown
    assert not (folder / "until").exists()
    assert bench.keeper(folder)["server"]["pid"] == pid
    assert inside(folder) == {pid}


@pytest.mark.slow
def test_a_release_whose_warm_time_ends_just_as_it_is_taken_back_is_started(
    bench: Bench, made: dict[str, Release], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = made["first"], made["second"]
    bench.promote(first)
    bench.promote(second)
    monkeypatch.setattr(replicas, "keep", lambda *_: bench.kill_replicas(first.id))
    assert first.id in bench.rollback()
    assert "was started" in bench.shown
    with traffic(bench.port) as load:
        load.wait_for(5)
    assert load.failures == []


@contextmanager
def monkeypatched_smoke() -> Iterator[None]:
    async def failing(*_: object) -> smoke.Smoke:
        raise PromotionError("another text")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(smoke, "smoke", failing)
        yield


@pytest.mark.slow
def test_what_is_no_longer_warm_is_stopped_by_the_next_change(bench: Bench, made: dict[str, Release]) -> None:
    first, second = made["first"], made["second"]
    bench.promote(first)
    bench.promote(second, warm_for_s=0)
    assert f"{first.id} stopped" in bench.shown
    assert [name for name in bench.units() if first.id in name] == []
    assert bench.standing().previous is None
