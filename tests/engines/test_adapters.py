"""What slots ask of every engine that is elsewhere, by its adapter and a scripted server in its place."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from engines.base import Method, Ranking
from orchestrator import process
from orchestrator.records import TrialState
from tests.engines.scripted import Bench, Scripted
from tests.engines.sglang.acting import SGLANG
from tests.engines.vllm.acting import VLLM


@pytest.fixture(params=[SGLANG, VLLM], ids=lambda scripted: scripted.engine)
def scripted(request: pytest.FixtureRequest) -> Scripted:
    found: Scripted = request.param
    return found


async def test_the_target_s_best_tokens_come_ranked_from_the_plain_server(bench: Bench) -> None:
    found = await bench.slot.rankings(bench.scripted.arm(Method.AUTOREGRESSIVE), bench.deployment(), [[1, 2, 3]])
    assert found == [Ranking(found[0].token_ids, (-0.25, -1.5))]
    assert found[0].regret(found[0].token_ids[1]) == 1.25


@pytest.mark.parametrize(
    ("script", "changes", "reason"),
    [
        ("", {"arguments": ("--flag-of-tomorrow",)}, "error: unrecognized arguments: --flag-of-tomorrow"),
        ("never_ready", {"ready_timeout_s": 1.5}, "engine {engine} was not ready after 1.5 s"),
        ("", {"target_digest": "another"}, "the server says target_digest = "),
        ("", {"drafter_digest": "another"}, "the server says drafter_digest = "),
        ("cut", {}, "connection lost"),
    ],
)
async def test_every_fault_is_one_line_and_the_sweep_goes_on(
    bench: Bench, script: str, changes: dict[str, Any], reason: str
) -> None:
    bench.costs_its_own_trial(await bench.run(script, **changes), reason.format(engine=bench.scripted.engine))
    assert (await bench.run()).record.state is TrialState.VALID


async def test_a_port_that_is_taken_is_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(process, "free_port", lambda row: taken.getsockname()[1])
        bench.costs_its_own_trial(await bench.run(), "Address already in use")
