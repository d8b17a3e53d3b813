"""Compose projects against compose's own check and a real daemon; a container with a GPU has not run here."""

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from orchestrator.promotion.host import Finished, HostError, Unit
from orchestrator.promotion.hosts.local import LocalHost
from orchestrator.promotion.supervisors import rendering
from orchestrator.promotion.supervisors.compose import ComposeSupervisor
from tests.orchestrator.processes import eventually
from tests.orchestrator.promotion.supervisors import dockerd
from tests.orchestrator.promotion.supervisors.dockerd import Dockerd, needs_dockerd
from tests.orchestrator.promotion.supervisors.recording import RecordingHost

SUPERVISOR = ComposeSupervisor()
UNIT = Unit(
    name="orchestrate-r1-0",
    argv=("python3", "-c", 'print("it\'s $HOME")\n\\', "--host", "127.0.0.9", "--port", "18100"),
    env={"TOKEN": "secret $HOME #1"},
    cwd=PurePosixPath("/srv/o/releases/r1"),
    folder=PurePosixPath("/srv/o/units/u"),
    release=PurePosixPath("/srv/o/releases/r1"),
    models=(PurePosixPath("/srv/o/models/a b"),),
    port=18100,
    gpus=("GPU-1", "GPU-2"),
    image="registry.invalid/engine@sha256:" + "0" * 64,
    memory_bytes=8 << 30,
)


def way() -> list[str] | None:
    """How compose is called on this machine."""
    if shutil.which("docker") and not subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else None


needs_compose = pytest.mark.skipif(way() is None, reason="compose is not installed (apt: docker-compose)")


def service(unit: Unit = UNIT) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(rendering.compose(unit, unit.folder / "unit.env"))["services"]["server"]
    return found


def test_a_container_is_closed_on_all_sides() -> None:
    stated = service()
    assert stated["read_only"] is True
    assert stated["cap_drop"] == ["ALL"]
    assert stated["security_opt"] == ["no-new-privileges:true"]
    assert stated["user"] == "10001:10001"
    assert stated["mem_limit"] == stated["memswap_limit"] == 8 << 30
    assert stated["restart"] == "unless-stopped"
    assert all(volume["read_only"] is True and volume["type"] == "bind" for volume in stated["volumes"])
    assert [volume["source"] for volume in stated["volumes"]] == ["/srv/o/releases/r1", "/srv/o/models/a b"]
    assert not stated.keys() & {"privileged", "ports", "devices", "environment", "pid", "cap_add"}
    assert "secret" not in rendering.compose(UNIT, UNIT.folder / "unit.env")


def test_it_gets_its_gpus_and_no_other() -> None:
    devices = service()["deploy"]["resources"]["reservations"]["devices"]
    assert devices == [{"driver": "nvidia", "device_ids": ["GPU-1", "GPU-2"], "capabilities": ["gpu"]}]
    assert "deploy" not in service(replace(UNIT, gpus=()))


def test_its_health_is_asked_where_it_listens() -> None:
    assert service()["healthcheck"]["test"][-1] == "http://127.0.0.9:18100/health"
    assert service(replace(UNIT, argv=("python3",)))["healthcheck"]["test"][-1] == "http://127.0.0.1:18100/health"


@needs_compose
@pytest.mark.parametrize("unit", [UNIT, replace(UNIT, gpus=(), memory_bytes=None)], ids=["gpu", "cpu"])
def test_compose_reads_it_as_it_was_meant(tmp_path: Path, unit: Unit) -> None:
    environment = tmp_path / "unit.env"
    environment.write_text(rendering.compose_variables(unit.env))
    file = tmp_path / "compose.yaml"
    file.write_text(rendering.compose(unit, PurePosixPath(environment)))
    command = [*(way() or []), "--project-name", unit.name, "--file", str(file), "config"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    read = yaml.safe_load(done.stdout)["services"]["server"]
    assert [word.replace("$$", "$") for word in read["command"]] == list(unit.argv)
    assert read["environment"]["TOKEN"].replace("$$", "$") == "secret $HOME #1"
    assert read["network_mode"] == "host"
    assert ("deploy" in read) == bool(unit.gpus)


@needs_compose
def test_compose_would_complain(tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(rendering.compose(replace(UNIT, gpus=()), PurePosixPath("/dev/null")).replace("init:", "inti:"))
    command = [*(way() or []), "--file", str(file), "config"]
    assert subprocess.run(command, capture_output=True, check=False, timeout=120).returncode != 0


def test_a_variable_that_cannot_be_passed_on_is_named() -> None:
    host = RecordingHost(lambda _: None)
    with pytest.raises(HostError, match="variable KEY has a quote or a line break"):
        SUPERVISOR.install(host, replace(UNIT, env={"KEY": "it's"}))
    assert host.files == {}


@pytest.mark.parametrize("unit", [replace(UNIT, image=None), replace(UNIT, name="A b")])
def test_what_compose_cannot_run_is_refused(unit: Unit) -> None:
    with pytest.raises(HostError, match="needs an image, and a name"):
        SUPERVISOR.install(RecordingHost(lambda _: None), unit)


def test_an_image_that_is_missing_is_pulled_and_its_absence_told() -> None:
    def answer(argv: Sequence[str]) -> Finished | None:
        return Finished(1, "", "first\nno such image\n") if argv[1] in ("image", "pull") else None

    host = RecordingHost(answer)
    with pytest.raises(HostError, match="gpu1: docker failed: no such image"):
        SUPERVISOR.install(host, UNIT)
    assert host.commands[-1] == f"docker pull --quiet {UNIT.image}"


def host_with(image: str = "", policy: str = "unless-stopped", running: bool = True) -> RecordingHost:
    """A host whose docker has this image and one container."""

    def answer(argv: Sequence[str]) -> Finished | None:
        if argv[:3] == ["docker", "image", "inspect"] and "--format" in argv:
            return Finished(0, f"{image}\n", "") if image else Finished(1, "", "Error: No such image\n")
        if argv[:2] == ["docker", "ps"]:
            return Finished(0, "c1\n" if running else "", "")
        return Finished(0, f"{policy}\n", "") if argv[:2] == ["docker", "inspect"] else None

    return RecordingHost(answer)


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        ("sha256:1 registry.invalid/engine@sha256:" + "1" * 64, "the image on this host is another one: sha256:1"),
        ("sha256:1", "the image on this host is another one: sha256:1"),
        ("", "the image on this host is another one: Error: No such image"),
    ],
)
def test_an_image_of_another_digest_is_not_started(there: str, reason: str) -> None:
    host = host_with(there)
    with pytest.raises(HostError, match=reason):
        SUPERVISOR.start(host, UNIT)
    assert not any(" up " in command for command in host.commands)


def test_an_image_of_the_digest_is_started_for_good() -> None:
    host = host_with("sha256:1 mirror.invalid/engine@sha256:" + "0" * 64)
    host.files[UNIT.folder / "until"] = b"1.0"
    SUPERVISOR.start(host, UNIT)
    assert host.files == {}
    assert [command.split(" --file")[0] for command in host.commands[-3:]] == [
        "docker compose --project-name orchestrate-r1-0",
        "docker ps --quiet --filter label=com.docker.compose.project=orchestrate-r1-0",
        "docker update --restart unless-stopped c1",
    ]
    SUPERVISOR.start(host_with("sha256:1"), replace(UNIT, image="sha256:1"))


def test_what_a_reboot_loses_is_what_docker_does_not_restart() -> None:
    assert SUPERVISOR.lost_by_reboot(host_with(), UNIT) == ""
    assert SUPERVISOR.lost_by_reboot(host_with(policy="no"), UNIT) == "its container's restart policy is 'no'"
    assert SUPERVISOR.lost_by_reboot(host_with(running=False), UNIT) == "there is no container"


def test_a_host_without_compose_is_told_so() -> None:
    def answer(argv: Sequence[str]) -> Finished | None:
        return Finished(1, "", "") if "compose" in argv or argv[0] == "sh" else None

    with pytest.raises(HostError, match="neither `docker compose` nor `docker-compose` is there"):
        SUPERVISOR.install(RecordingHost(answer), UNIT)


SERVER = """
import http.server, os, signal, sys, threading
print("uid", os.getuid(), "token", os.environ["TOKEN"], "home", os.environ["HOME"], flush=True)
def tells(act):
    try:
        act()
    except OSError as error:
        return error.strerror
    return "done"
print("root:", tells(lambda: open("/x", "w")), "release:", tells(lambda: open("x", "w")), flush=True)
print("tmp:", tells(lambda: open("/tmp/x", "w")), flush=True)
print("capabilities:", [line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")], flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"ok")
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer((sys.argv[2], int(sys.argv[4])), Handler)
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever()
print("bye", flush=True)
"""


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dockerd]:
    running = dockerd.start(tmp_path)
    monkeypatch.setenv("DOCKER_HOST", running.address)
    yield running
    running.stop()


@needs_compose
@needs_dockerd
@pytest.mark.slow
def test_a_server_lives_and_dies_in_a_real_container(daemon: Dockerd, tmp_path: Path) -> None:
    host, image = LocalHost(), dockerd.make_image(daemon)
    release = tmp_path / "release"
    release.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    unit = replace(
        UNIT,
        argv=("python3", "-c", SERVER, "--host", "127.0.0.1", "--port", str(port)),
        cwd=PurePosixPath(release),
        release=PurePosixPath(release),
        folder=PurePosixPath(tmp_path / "unit"),
        models=(),
        port=port,
        gpus=(),
        image=image,
        memory_bytes=256 << 20,
    )
    SUPERVISOR.install(host, unit)
    assert not SUPERVISOR.alive(host, unit)
    SUPERVISOR.start(host, unit)
    assert eventually(lambda: _answers(port), 30), SUPERVISOR.log(host, unit, 50)
    assert SUPERVISOR.alive(host, unit)
    lines = SUPERVISOR.log(host, unit, 50).splitlines()
    assert lines == [
        "uid 10001 token secret $HOME #1 home /tmp",
        "root: Read-only file system release: Read-only file system",
        "tmp: done",
        "capabilities: ['0000000000000000']",
    ]
    (container,) = daemon.docker("ps", "--quiet").split()
    stated = json.loads(daemon.docker("inspect", container))[0]["HostConfig"]
    assert stated["Memory"] == 256 << 20
    SUPERVISOR.start(host, unit)
    assert daemon.docker("ps", "--quiet").split() == [container]
    os.kill(int(daemon.docker("inspect", "--format", "{{.State.Pid}}", container)), 9)
    assert eventually(lambda: "1" in daemon.docker("inspect", "--format", "{{.RestartCount}}", container), 30)
    assert eventually(lambda: _answers(port), 30)
    assert SUPERVISOR.read(host, unit, PurePosixPath("/tmp/x")) == b""
    assert SUPERVISOR.read(host, unit, PurePosixPath("/tmp/none")) is None
    assert SUPERVISOR.lost_by_reboot(host, unit) == ""
    SUPERVISOR.expire(host, unit, 6)
    SUPERVISOR.start(host, unit)
    time.sleep(8)
    assert SUPERVISOR.alive(host, unit), "a start forgets the end"
    SUPERVISOR.expire(host, unit, 1)
    assert SUPERVISOR.lost_by_reboot(host, unit) == "its container's restart policy is 'no'"
    assert eventually(lambda: not SUPERVISOR.alive(host, unit), 30)
    SUPERVISOR.start(host, unit)
    assert eventually(lambda: _answers(port), 30)
    SUPERVISOR.stop(host, unit, 20)
    SUPERVISOR.stop(host, unit, 20)
    assert not SUPERVISOR.alive(host, unit)
    assert SUPERVISOR.log(host, unit, 50).splitlines()[-1] == "bye"
    SUPERVISOR.start(host, unit)
    assert SUPERVISOR.alive(host, unit)
    SUPERVISOR.remove(host, unit)
    SUPERVISOR.remove(host, unit)
    assert daemon.docker("ps", "--quiet", "--all") == ""
    assert not (tmp_path / "unit").exists()


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 2) as client:
            client.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            return b"200" in client.recv(100)
    except OSError:
        return False
