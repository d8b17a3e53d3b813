import socket
from pathlib import Path

import pytest

from orchestrator import ports


def test_a_free_port_is_below_those_of_outgoing_connections_and_can_be_listened_on() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for _ in range(50):
        port = ports.free_port()
        assert 20_000 <= port < first
        socket.create_server(("127.0.0.1", port)).close()


def test_the_ports_of_a_row_are_free_together(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", ports.free_port(row=3))) as taken:
        middle = taken.getsockname()[1]
        monkeypatch.setattr(ports, "_LOWEST", middle - 1)
        monkeypatch.setattr(ports, "_HIGHEST", middle + 3)
        monkeypatch.setattr(ports, "_first_outgoing", lambda: 65_536)
        assert {ports.free_port(row=2) for _ in range(20)} == {middle + 1}


def test_a_port_that_somebody_listens_on_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(ports, "_LOWEST", port)
        monkeypatch.setattr(ports, "_HIGHEST", port + 1)
        monkeypatch.setattr(ports, "_first_outgoing", lambda: 65_536)
        assert ports.free_port() != port


@pytest.mark.parametrize("row", [1, 2])
def test_where_outgoing_connections_may_have_every_port_any_free_one_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, row: int
) -> None:
    everything = tmp_path / "range"
    everything.write_text("1024\t65535\n")
    monkeypatch.setattr(ports, "_OUTGOING", everything)
    for _ in range(30):
        first = ports.free_port(row=row)
        for port in range(first, first + row):
            socket.create_server(("127.0.0.1", port)).close()
