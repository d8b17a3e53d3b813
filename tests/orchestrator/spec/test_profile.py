from tests.orchestrator.spec.refusing import refused
from tests.orchestrator.sweeps import fake_sweep


def test_default_engine_of_a_profile_must_be_listed() -> None:
    profile = fake_sweep()["profiles"]["local"] | {"engine": "sglang"}
    assert "is not among `engines`" in refused(fake_sweep(profiles={"local": profile}))
