"""A promotion under a real systemd, and the power cut. The load comes from outside, over the loopback interface."""

import json
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ports import free_port
from orchestrator.promotion.release import Release
from tests.orchestrator.processes import eventually
from tests.orchestrator.promotion import making
from tests.orchestrator.promotion.bench import PROGRAM, need_nginx
from tests.orchestrator.promotion.supervisors.machine import Machine, unavailable
from tests.orchestrator.promotion.traffic import tell, traffic

ROOT = Path(__file__).parents[3]
PYTHON = "/usr/bin/python3"
REASON = unavailable()

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(REASON), reason=REASON), pytest.mark.timeout(300)]


@pytest.fixture
def machine(tmp_path: Path, made: dict[str, Release]) -> Iterator[Machine]:
    """Services see no home: what they need lies in /srv, and runs by Debian's Python."""
    need_nginx()
    version = subprocess.run(
        [PYTHON, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, check=False
    )
    if version.stdout.decode().split() != [str(number) for number in sys.version_info[:2]]:
        pytest.skip(f"{PYTHON} is not the version of this environment, whose packages it would use")
    (tmp_path / "disk").mkdir()
    shared = made["first"].folder.parents[1]
    bound = {"code": ROOT, "packages": Path(sysconfig.get_path("platlib")), "shared": shared}
    found = Machine(tmp_path / "disk", bound)
    try:
        found.boot()
        yield found
    finally:
        found.close()


class Target:
    """The target `bench` of the machine, by the program's own commands in there."""

    def __init__(self, machine: Machine, shared: Path, port: int, **changes: Any) -> None:
        self.machine, self.shared, self.port = machine, shared, port
        target = making.target(Path("/srv/orchestrate"), port, supervisor="systemd", interpreter=PYTHON, **changes)
        target["environment"] = {"PYTHONPATH": "/srv/code:/srv/packages"}
        making.write_deploy(shared / "machine.yaml", bench=target)
        machine.run("mkdir", "-p", str(shared))  # a release names its models by their paths
        machine.run("mount", "--bind", "/srv/shared", str(shared))

    def command(self, *arguments: str) -> dict[str, Any]:
        variables = {
            "ORCHESTRATE_DEPLOY": "/srv/shared/machine.yaml",
            "HOME": "/srv/home",
            "PATH": "/usr/bin:/bin:/usr/sbin",
        }
        variables |= {"PYTHONPATH": "/srv/code:/srv/packages"}
        done = self.machine.run(PYTHON, *PROGRAM, *arguments, "--json", variables=variables)
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def promote(self, release: Release) -> dict[str, Any]:
        releases = f"/srv/shared/{release.folder.parent.relative_to(self.shared)}"
        allow = ("--allow", "environment", "--yes")
        return self.command("promote", release.id, "--to", "bench", *allow, "--releases", releases)

    def active(self, what: str) -> str:
        """The state of the service whose name holds the text; its timer's own service is another."""
        listed = self.machine.run("systemctl", "list-units", "--all", "--plain", "--no-legend", "*.service").stdout
        rows = [line.split() for line in listed.splitlines() if what in line and "-end.service" not in line]
        return rows[0][2] if rows else "gone"


def test_a_promotion_under_systemd_survives_a_power_cut(
    machine: Machine, made: dict[str, Release], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = made["first"], made["second"]
    target = Target(machine, first.folder.parents[1], free_port(row=6), warm_for_s=15)
    assert target.promote(first)["serving"] == first.id
    with traffic(target.port) as load:
        load.wait_for(10)
        told = target.promote(second)
        assert (told["outcome"], told["serving"], told["left_open"]) == ("done", second.id, False)
        assert target.active(first.id) == "active", "it is warm"
        load.wait_for(10)
        pid = machine.run(
            "systemctl", "show", "--property=MainPID", "--value", "orchestrate-bench-router"
        ).stdout.strip()
        machine.run("kill", "-KILL", pid)
        assert eventually(lambda: target.active("bench-router") == "active")
        load.wait_for(10)
        assert eventually(lambda: target.active(first.id) in ("inactive", "gone"), 60), "and stops by itself"
    tell(capsys, "a promotion under systemd, nginx's master killed", load)
    assert len(load.failures) == load.refused
    machine.off()
    machine.boot()
    assert eventually(lambda: target.active(second.id) == "active", 30)
    status = target.command("status", "bench")
    assert status["lost_by_reboot"] == []
    assert [(one["part"], one["share"]) for one in status["releases"]] == [("serving", 100.0), ("stopped", 0.0)]
    with traffic(target.port) as load:
        load.wait_for(20)
        assert target.command("rollback", "bench", "--yes")["serving"] == first.id
        load.wait_for(10)
    tell(capsys, "after the power cut, and a rollback", load)
    assert load.failures == []
    assert target.active(second.id) == "gone"
