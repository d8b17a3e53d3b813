from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.promotion.host import Host
from orchestrator.promotion.hosts.local import LocalHost
from orchestrator.promotion.hosts.ssh import SshHost
from tests.orchestrator.promotion.sshd import Sshd, needs_sshd


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One sshd for the tests that leave it as it is."""
    server = Sshd(tmp_path_factory.mktemp("sshd"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    """An sshd of the test's own: to kill, and to give other keys."""
    server = Sshd(tmp_path / "sshd")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def remote(sshd: Sshd) -> Iterator[SshHost]:
    host = SshHost("gpu1", sshd.login)
    yield host
    host.close()


@pytest.fixture(params=["local", pytest.param("ssh", marks=needs_sshd)])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    """Both kinds: what they promise is the same."""
    if request.param == "local":
        yield LocalHost()
    else:
        running = request.getfixturevalue("running")
        remote = SshHost("gpu1", running.login)
        yield remote
        remote.close()
