import socket
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import InputError


def test_a_folder_that_is_not_there_is_one_line(invoke: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        invoke("dashboard", tmp_path / "none")


def test_a_port_that_is_taken_is_one_line(invoke: Any, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="cannot listen there: Address already in use"):
            invoke("dashboard", tmp_path, "--port", str(taken.getsockname()[1]))


@pytest.mark.parametrize("host", ["256.1.1.1", "a..b", "unix://{file}"])
def test_what_is_no_address_is_one_line_and_harms_nothing(invoke: Any, tmp_path: Path, host: str) -> None:
    file = tmp_path / "kept"
    file.touch()
    with pytest.raises(InputError, match=r"cannot listen there: [A-Za-z]"):
        invoke("dashboard", tmp_path, "--host", host.format(file=file), "--port", "0")
    assert file.exists()
