import os
import subprocess

from orchestrator.load.cores import choose, pinned


def test_two_cores_are_shared_and_said_to_be() -> None:
    cores = choose({0, 1}, threads=1, slot=0)
    assert (cores.client, cores.engine, cores.own) == ((0, 1), (0, 1), False)


def test_with_enough_cores_the_engine_leaves_one_to_the_client() -> None:
    cores = choose(range(8), threads=6, slot=0)
    assert (cores.client, cores.engine, cores.own) == ((7,), tuple(range(7)), True)
    assert not choose(range(8), threads=7, slot=0).own, "the engine's server needs a thread, too"


def test_clients_of_several_slots_have_different_cores() -> None:
    placed = [choose(range(16), threads=1, slot=slot).client for slot in range(5)]
    assert placed == [(15,), (14,), (13,), (12,), (15,)]


def test_a_process_starts_where_it_is_pinned_and_its_starter_does_not_stay_there() -> None:
    before = os.sched_getaffinity(0)
    with pinned({min(before)}):
        told = subprocess.run(["nproc"], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "1"
    assert os.sched_getaffinity(0) == before
