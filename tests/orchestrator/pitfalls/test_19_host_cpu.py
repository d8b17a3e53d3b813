"""The same GPU in another host: 119.8 against 32.6 ms a token (CAST). The host is in the identity."""

from pathlib import Path

import pytest

from orchestrator.environment import describe
from orchestrator.errors import InputError
from orchestrator.hardware import numa_nodes
from orchestrator.identity import differences
from orchestrator.store import RunStore

HOST = {"cpu", "cores", "threads", "governor", "numa", "memory_bytes", "kernel", "gpus", "host"}


def test_the_host_is_described() -> None:
    found = describe()
    assert set(found) >= HOST
    assert found["cpu"]
    assert found["numa"]


def test_memory_nodes_are_read_in_their_order(tmp_path: Path) -> None:
    for node, cpus in {"node10": "40-43", "node0": "0-3", "node2": "8-11"}.items():
        (tmp_path / node).mkdir()
        (tmp_path / node / "cpulist").write_text(f"{cpus}\n")
    assert numa_nodes(tmp_path) == ["0-3", "8-11", "40-43"]


def test_runs_of_two_hosts_are_not_compared() -> None:
    other = differences({"cpu": "EPYC 9654", "gpus": []}, {"cpu": "Xeon 6248", "gpus": []})
    assert [(item.what, item.refused) for item in other] == [("cpu", True)]
    (governor,) = differences({"governor": "performance"}, {"governor": "powersave"})
    assert not governor.refused


def test_a_run_does_not_go_on_in_another_host(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "run")
    store.create({}, {"cpu": "EPYC 9654", "gpus": []})
    store.create({}, {"cpu": "EPYC 9654", "gpus": []})
    with pytest.raises(InputError, match="measured on EPYC 9654, this is Xeon 6248"):
        store.create({}, {"cpu": "Xeon 6248", "gpus": []})
