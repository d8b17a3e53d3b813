"""Everything on a target killed in its turn, and the machine switched off. Numbers are printed."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.promotion.release import Release
from orchestrator.promotion.state import state
from tests.orchestrator.processes import eventually, parent
from tests.orchestrator.promotion import crontab
from tests.orchestrator.promotion.bench import Bench, inside, opened
from tests.orchestrator.promotion.test_kills import KILLED, command
from tests.orchestrator.promotion.traffic import tell, traffic

AT_ONCE = 3

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(tmp_path: Path, made: dict[str, Release]) -> Iterator[Bench]:
    """The first release serves."""
    with opened(tmp_path) as found:
        found.promote(made["first"])
        yield found


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not Path(f"/proc/{pid}").exists())


def workers(master: int, router: Path) -> list[int]:
    return [pid for pid in inside(router) if parent(pid) == master]


@pytest.mark.timeout(300)
def test_what_answers_nobody_can_be_killed_and_nobody_notices(
    bench: Bench, made: dict[str, Release], capsys: pytest.CaptureFixture[str]
) -> None:
    """Only between nginx's old workers and its new master there are moments in which nobody listens: a request that is
    refused then has not started."""
    first, second = made["first"], made["second"]
    bench.promote(second)
    serving, warm, router = bench.unit_folder(second.id), bench.unit_folder(first.id), bench.router_folder

    def process(folder: Path, which: str) -> Callable[[], int]:
        return lambda: int(bench.keeper(folder)[which]["pid"])

    killed = {
        "the warm server": process(warm, "server"),
        "the warm server's keeper": process(warm, "keeper"),
        "the serving server's keeper": process(serving, "keeper"),
        "nginx's master": process(router, "server"),
        "nginx's keeper": process(router, "keeper"),
    }
    with traffic(bench.port, AT_ONCE) as load:
        for what, pid in killed.items():
            load.wait_for(5)
            before = load.answered
            kill(pid())
            load.wait_for(10)
            with capsys.disabled():
                print(f"\n  {what} killed: {load.answered - before} answers after it", end="")
            assert len(load.failures) == load.refused, what
        assert "serves already" in bench.promote(second), "what lost its keeper is taken over"
        load.wait_for(10)
    tell(capsys, f"{len(killed)} processes killed that answer nobody", load)
    assert len(load.failures) == load.refused
    with bench.site() as site:
        assert site.router.lost_by_reboot() == ""
        assert state(site).releases[0].healthy


@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", ["the serving server", "nginx's worker", "all of nginx"])
def test_what_answers_somebody_cuts_what_it_was_answering_and_no_more(
    bench: Bench, made: dict[str, Release], capsys: pytest.CaptureFixture[str], what: str
) -> None:
    """The bytes that a dead process had sent cannot be said again by another. The rest is answered."""
    bench.promote(made["second"])
    router = bench.router_folder
    master = int(bench.keeper(router)["server"]["pid"])
    with traffic(bench.port, AT_ONCE) as load:
        load.wait_for(10)
        if what == "the serving server":
            kill(int(bench.keeper(bench.unit_folder(made["second"].id))["server"]["pid"]))
        elif what == "nginx's worker":
            kill(workers(master, router)[0])
        else:
            everything = [master, *workers(master, router)]
            for pid in everything:
                os.kill(pid, signal.SIGKILL)
        goal = load.whole + 20
        assert eventually(lambda: load.whole >= goal, 30)
        failed = len(load.failures)
        load.wait_for(20)
    tell(capsys, f"{what} killed", load)
    assert len(load.failures) == failed, "what came later was answered"
    assert failed - load.refused <= AT_ONCE
    assert what == "all of nginx" or not load.refused


def test_after_a_reboot_the_old_release_answers_without_anyone(
    bench: Bench, made: dict[str, Release], cron: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The machine goes off in the middle of a promotion, and on again: cron does what its lines say, and nobody else
    does anything."""
    first, second = made["first"], made["second"]
    shown, _ = bench.command("routed", *command(second), through=KILLED).communicate(timeout=120)
    assert bench.shares() == {first.id: 80.0, second.id: 20.0}, shown
    assert bench.pull_the_plug() >= 7
    with bench.site() as site:
        assert not site.router.running()
    assert crontab.reboot(cron, str(bench.root)) == 3
    with bench.site() as site:
        assert eventually(lambda: all(one.healthy for one in state(site).releases) and site.router.running(), 30)
    with traffic(bench.port, AT_ONCE) as load:
        load.wait_for(20)
        assert bench.serving() == first.id
        assert second.name in bench.promote(second), "and the same command goes on"
        load.wait_for(10)
    tell(capsys, "after a reboot in the middle of a promotion", load)
    assert load.failures == []


def test_a_warm_release_does_not_come_back(bench: Bench, made: dict[str, Release], cron: Path) -> None:
    first, second = made["first"], made["second"]
    bench.promote(second)
    bench.pull_the_plug()
    assert crontab.reboot(cron, str(bench.root)) == 2
    with bench.site() as site:
        assert eventually(site.router.running)
        assert eventually(lambda: state(site).releases[0].healthy, 30)
        assert [one.healthy for one in state(site).releases] == [True, False]
    with traffic(bench.port) as load:
        load.wait_for(5)
    assert load.failures == []
    assert first.id in bench.rollback()
    assert "was started" in bench.shown
