"""Servers of releases: they come up as the arm, because nobody is there to configure them after a restart."""

import asyncio
import subprocess
from dataclasses import replace

import pytest

from engines.base import Arm, Method, check_identity
from engines.fake.adapter import FakeEngine
from engines.reference.adapter import ReferenceEngine
from engines.reference.serving.options import parse
from orchestrator.ports import free_port
from tests.orchestrator.acting import deployment
from tests.orchestrator.processes import eventually

TREE = Arm("tree", "reference", Method.DDTREE, budget=15, chain=True)


@pytest.mark.parametrize(
    "arm", [TREE, Arm("plain", "reference", Method.AUTOREGRESSIVE), Arm("chain", "reference", Method.DFLASH)]
)
def test_the_reference_server_is_told_its_arm_and_its_address(arm: Arm) -> None:
    command = ReferenceEngine().serve(arm, deployment(), "10.0.0.7", 8123)
    options = parse(command[3:])
    assert (options.method.name, options.method.budget, options.method.chain) == (arm.method, arm.budget, arm.chain)
    assert (options.host, options.port) == ("10.0.0.7", 8123)


def test_the_fake_server_comes_up_as_its_arm() -> None:
    arm, port = replace(TREE, engine="fake", options={"step_ms": 3.0}), free_port()
    engine, deployed = FakeEngine(), deployment()
    endpoint = engine.endpoint(port)
    with subprocess.Popen(engine.serve(arm, deployed, "127.0.0.1", port), stderr=subprocess.DEVNULL) as process:
        try:
            assert eventually(lambda: asyncio.run(engine.healthy(endpoint)), 60)
            check_identity(asyncio.run(engine.identify(endpoint)), arm, deployed)
        finally:
            process.kill()
