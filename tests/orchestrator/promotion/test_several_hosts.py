import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.promotion import smoke
from orchestrator.promotion.errors import PromotionError
from orchestrator.promotion.host import HostError
from orchestrator.promotion.release import Release
from tests.orchestrator.promotion.bench import Bench, opened
from tests.orchestrator.promotion.sshd import Sshd, needs_sshd
from tests.orchestrator.promotion.traffic import tell, traffic

pytestmark = [needs_sshd, pytest.mark.slow]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[dict[str, Sshd]]:
    """Two sshd on two loopback addresses; each stands for a machine."""
    found = {"a": Sshd(tmp_path / "a", "127.0.0.1"), "b": Sshd(tmp_path / "b", "127.0.0.2")}
    try:
        for one in found.values():
            one.start()
        yield found
    finally:
        for one in found.values():
            one.kill()


@pytest.fixture
def bench(tmp_path: Path, hosts: dict[str, Sshd]) -> Iterator[Bench]:
    with opened(tmp_path) as found:
        found.changes = ssh_target(hosts, tmp_path)
        yield found


def ssh_target(hosts: dict[str, Sshd], folder: Path) -> dict[str, Any]:
    known = folder / "known_hosts"
    known.write_text("".join(one.known_hosts.read_text() for one in hosts.values()))
    return {
        "kind": "ssh",
        "known_hosts": str(known),
        "interpreter": sys.executable,
        "hosts": [
            {
                "name": name,
                "address": one.address,
                "port": one.port,
                "key": str(one.folder / "user"),
                "listen": one.address,
            }
            for name, one in hosts.items()
        ],
    }


def test_two_hosts_behind_one_router_turn_together_or_not_at_all(
    bench: Bench, made: dict[str, Release], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = made["first"], made["second"]
    bench.promote(first)
    serving = bench.standing().serving
    assert serving is not None
    assert [replica.host for replica in serving.replicas] == ["a", "b"]
    whole, tested = smoke.smoke, []

    async def failing_on_b(*arguments: Any) -> smoke.Smoke:
        tested.append(arguments)
        if len(tested) == 2:
            raise PromotionError("another text")
        return await whole(*arguments)

    with traffic(bench.port) as load:
        monkeypatch.setattr(smoke, "smoke", failing_on_b)
        with pytest.raises(PromotionError, match=rf"smoke: b:\d+: another text; {first.id} serves as before"):
            bench.promote(second)
        assert [name for name in bench.units() if second.id in name] == []
        monkeypatch.undo()
        assert second.name in bench.promote(second)
        load.wait_for(10)
        assert first.id in bench.rollback()
        load.wait_for(10)
    assert load.failures == []
    assert len(bench.units()) == 2


def test_a_host_that_is_lost_in_the_middle_costs_no_request(
    bench: Bench,
    made: dict[str, Release],
    hosts: dict[str, Sshd],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = made["first"], made["second"]
    bench.promote(first)

    async def lost(*_: object) -> smoke.Smoke:
        hosts["b"].kill()
        raise PromotionError("the connection is gone")

    with traffic(bench.port) as load:
        monkeypatch.setattr(smoke, "smoke", lost)
        with pytest.raises(PromotionError, match=r"the connection is gone; and undoing it failed: b: .*cleans up"):
            bench.promote(second)
        monkeypatch.undo()
        load.wait_for(10)
        hosts["b"].start()
        assert second.name in bench.promote(second)
        assert "was cut off and is undone first" in bench.shown
        load.wait_for(10)
    tell(capsys, "a host lost and found in a promotion", load)
    assert load.failures == []
    assert bench.serving() == second.id


def test_a_replica_that_dies_is_stood_in_for_by_the_other_host(bench: Bench, made: dict[str, Release]) -> None:
    bench.promote(made["first"])
    with traffic(bench.port) as load:
        load.wait_for(5)
    with bench.site() as site:
        unit = site.unit(made["first"], bench.standing().known[made["first"].id].replicas[1])
        site.supervisor.stop(site.hosts["b"], unit, 5)
    with traffic(bench.port) as load:
        load.wait_for(20)
    assert load.failures == []


def test_a_host_whose_key_is_not_known_is_refused(bench: Bench, made: dict[str, Release]) -> None:
    known = Path(bench.changes["known_hosts"])
    written = known.read_text()
    known.write_text(written.splitlines()[0] + "\n")
    with pytest.raises(HostError, match="unknown"):
        bench.promote(made["first"])
    known.write_text(written)
    assert bench.serving() is None
