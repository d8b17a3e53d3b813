"""The reference engine with the real model and drafter as the release: whoever answers, the text is the same."""

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from orchestrator.promotion.freeze import freeze
from orchestrator.promotion.release import Release
from tests.orchestrator.promotion import making
from tests.orchestrator.promotion.bench import Bench, opened
from tests.orchestrator.promotion.traffic import ask, tell, traffic

CHAIN, TREE = {"method": "dflash", "name": "chain"}, {"method": "ddtree", "name": "tree", "budget": 7}
MODELS = {"target": "smollm2-135m", "drafter": "smollm2-135m-dflash-b8"}
SWEEP: dict[str, Any] = {
    "question": "Which is promoted?",
    "arms": [{"method": "autoregressive"}, CHAIN, TREE],
    "workload": {"prompts": {"set": "orchestrate", "count": 4, "seed": 3}, "max_tokens": 12},
    "blocks": {"count": 2, "seed": 5},
    "profiles": {
        "local": {
            "match": {"cpus": 1, "memory_gib": 2},
            "engine": "reference",
            "engines": {"reference": {"device": "cpu", "dtype": "float32", "threads": 1}},
            "models": MODELS,
        }
    },
}
QUESTIONS = ("What is a tree?", "Count to ten.", "Name three rivers in Europe.")

pytestmark = [pytest.mark.slow, pytest.mark.model, pytest.mark.timeout(600)]


@pytest.fixture
def releases(tmp_path: Path) -> dict[str, Release]:
    """One run, frozen once for each of two arms."""
    store = asyncio.run(making.swept(tmp_path / "run", SWEEP, "chain"))
    chain = freeze(store, tmp_path / "releases")
    making.change_decision(store, arm="tree", sentence="tree wins, for the tests' sake")
    return {"chain": chain, "tree": freeze(store, tmp_path / "releases")}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path) as found:
        found.changes = {"ready_s": 240}
        yield found


def test_no_answer_is_cut_or_changes_when_another_release_gives_it(
    bench: Bench, releases: dict[str, Release], capsys: pytest.CaptureFixture[str]
) -> None:
    chain, tree = releases["chain"], releases["tree"]
    bench.promote(chain)
    said: dict[str, set[tuple[int, ...]]] = {question: set() for question in QUESTIONS}
    turn = itertools.cycle(QUESTIONS)

    async def chat(session: aiohttp.ClientSession, url: str) -> None:
        question = next(turn)
        said[question].add(tuple(await ask(session, url, question, {}, "target")))

    with traffic(bench.port, 2, chat) as load:
        load.wait_for(6)
        assert tree.name in bench.promote(tree)
        load.wait_for(6)
        assert "answers are the run's" in bench.shown
        assert chain.id in bench.rollback()
        load.wait_for(6)
    tell(capsys, "the real pair: a promotion and a rollback", load)
    assert load.failures == []
    assert {question: len(texts) for question, texts in said.items()} == dict.fromkeys(QUESTIONS, 1)
