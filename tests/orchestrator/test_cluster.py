from typing import Any

import pytest

from orchestrator.cluster import Offer, choose_profile, connect, this_machine
from orchestrator.errors import InputError
from orchestrator.spec import SweepSpec
from tests.orchestrator.sweeps import fake_sweep

SMALL = Offer("a", cpus=2, memory_gib=7.5, gpus=0, accelerator=None)
HOST = Offer("b", cpus=64, memory_gib=500.0, gpus=8, accelerator="RTX-PRO-6000")


def spec(**matches: dict[str, Any]) -> SweepSpec:
    """A sweep with one profile for each keyword: its `match`, and `slots` if that is given."""
    local = fake_sweep()["profiles"]["local"]
    profiles = {name: local | {"slots": match.pop("slots", 1), "match": match} for name, match in matches.items()}
    return SweepSpec.model_validate(fake_sweep(profiles=profiles))


def both() -> SweepSpec:
    return spec(
        pro6000={"accelerator": "RTX-PRO-6000", "cpus": 8, "memory_gib": 32, "slots": "all"},
        local={"cpus": 2, "memory_gib": 4},
    )


def test_auto_takes_the_first_profile_that_fits_and_says_why_not_the_others() -> None:
    choice = choose_profile(both(), "auto", [SMALL])
    assert (choice.profile, choice.slots) == ("local", 1)
    assert choice.line == (
        "profile local: 1 slot of 2 CPUs, 4 GiB "
        "(pro6000 needs 1 slot of 1 x RTX-PRO-6000, 8 CPUs, 32 GiB, found 2 CPUs, 7.5 GiB)"
    )


def test_all_slots_are_what_the_nodes_hold_together() -> None:
    choice = choose_profile(both(), "auto", [SMALL, HOST, HOST])
    assert (choice.profile, choice.slots) == ("pro6000", 16)
    tensor_parallel = spec(tp={"accelerator": "RTX-PRO-6000", "gpus": 4, "cpus": 40, "memory_gib": 100, "slots": "all"})
    assert choose_profile(tensor_parallel, "auto", [HOST]).slots == 1


def test_a_slot_does_not_span_nodes() -> None:
    wanted = spec(wide={"cpus": 3, "memory_gib": 1})
    with pytest.raises(InputError, match=r"wide needs 1 slot of 3 CPUs, 1 GiB, found 2 CPUs, 7\.5 GiB \+ 2 CPUs"):
        choose_profile(wanted, "auto", [SMALL, SMALL])


@pytest.mark.parametrize(
    "match",
    [
        {"cpus": 4, "memory_gib": 1},
        {"cpus": 1, "memory_gib": 8},
        {"cpus": 1, "memory_gib": 1, "gpus": 1},
        {"cpus": 1, "memory_gib": 4, "slots": 2},
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(match: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        choose_profile(spec(p=match), "auto", [SMALL])
    assert str(caught.value).startswith("no profile fits: p needs ")
    assert "\n" not in str(caught.value)


def test_another_accelerator_does_not_do() -> None:
    wanted = spec(h={"accelerator": "H200", "cpus": 1, "memory_gib": 1})
    with pytest.raises(InputError, match=r"found 8 x RTX-PRO-6000, 64 CPUs"):
        choose_profile(wanted, "h", [HOST])


def test_a_named_profile_is_taken_or_refused_and_never_replaced() -> None:
    assert choose_profile(both(), "local", [HOST]).profile == "local"
    with pytest.raises(InputError, match="pro6000 needs"):
        choose_profile(both(), "pro6000", [SMALL])
    with pytest.raises(InputError, match=r"no profile 'gpu'; the file has pro6000, local, or use auto"):
        choose_profile(both(), "gpu", [SMALL])


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:70000", "nonsense"])
def test_a_cluster_that_is_not_there_is_one_line_at_once(address: str) -> None:
    with pytest.raises(InputError) as caught, connect(address):
        pass
    assert str(caught.value).startswith(f"Ray at {address}: ")
    assert "\n" not in str(caught.value)


def test_this_machine_offers_what_it_has() -> None:
    (offer,) = this_machine()
    assert offer.cpus >= 1
    assert offer.memory_gib > 0.1
