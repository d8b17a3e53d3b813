from types import SimpleNamespace
from typing import Any

import pytest

from engines.base import Arm, DraftNode, DraftTree, Endpoint, EngineError, Method
from engines.fake.adapter import FakeEngine
from orchestrator.answer import Answer
from orchestrator.prompts import Prompt
from orchestrator.records import DraftTrees, TrialState
from orchestrator.slots import Slot
from orchestrator.trees import STEPS, record_trees
from tests.orchestrator.acting import ANY_LOAD, MATCH, trial

HERE = Endpoint("http://nowhere.invalid", "m")
ROOT, CHILD = DraftNode(5, "a", -1, 0, 0.0), DraftNode(6, "b", 0, 1, -0.5)
STEP = DraftTree((ROOT, CHILD), (0, 1), 7, "c")


class Teller:
    """An engine of which only `draft_trees` is asked."""

    def __init__(self, said: Any) -> None:
        self.said = said
        self.asked: list[tuple[list[int], int]] = []

    async def draft_trees(self, _: Endpoint, token_ids: list[int], steps: int) -> Any:
        self.asked.append((token_ids, steps))
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


def answer(name: str, sent: float, ids: list[int]) -> Answer:
    return Answer(Prompt(name, "chat", (("user", "x"),)), 0.0, sent=sent, prompt_token_ids=ids)


async def record(
    said: Any, *, method: Method = Method.DDTREE, block: int = 0, at: int = 2, ids: tuple[int, ...] = (1, 2)
) -> Any:
    subject: Any = SimpleNamespace(
        block=block,
        concurrency=at,
        workload=SimpleNamespace(concurrency=[4, 2]),
        arm=Arm("tree", "reference", method, budget=1),
    )
    teller: Any = Teller(said)
    found = await record_trees(teller, HERE, subject, [answer("late", 2.0, [9]), answer("early", 1.0, list(ids))])
    return found, teller.asked


async def test_the_prompt_that_was_sent_first_is_recorded_once_more() -> None:
    found, asked = await record((STEP,))
    assert asked == [([1, 2], STEPS)]
    assert (found.prompt_id, found.problem, len(found.steps)) == ("early", "", 1)
    assert found.steps[0].nodes[1].model_dump() == {
        "token_id": 6,
        "text": "b",
        "parent": 0,
        "depth": 1,
        "log_prob": -0.5,
    }


@pytest.mark.parametrize("case", [{"method": Method.AUTOREGRESSIVE}, {"block": 1}, {"at": 4}, {"ids": ()}])
async def test_nothing_is_asked_where_there_is_nothing_to_tell(case: dict[str, Any]) -> None:
    assert await record((STEP,), **case) == (None, [])


async def test_an_engine_that_does_not_tell_has_none() -> None:
    assert (await record(None))[0] is None


async def test_what_goes_wrong_is_told() -> None:
    found, _ = await record(EngineError("it died"))
    assert found == DraftTrees(prompt_id="early", steps=[], problem="it died")
    crooked = DraftTree((ROOT, DraftNode(6, "b", 1, 1, -0.5)), (0,), 7, "c")
    found, _ = await record((crooked,))
    assert (found.steps, "no tree" in found.problem) == ([], True)


async def test_a_trial_comes_with_its_trees_and_nothing_of_them_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[int]] = []

    async def draft_trees(_: FakeEngine, endpoint: Endpoint, token_ids: list[int], steps: int) -> tuple[DraftTree, ...]:
        asked.append(token_ids)
        return (STEP,) * steps

    monkeypatch.setattr(FakeEngine, "draft_trees", draft_trees)
    slot = Slot("slot-0", MATCH, ANY_LOAD)
    await slot.open()
    try:
        measured = await slot.run(trial())
    finally:
        await slot.close()
    assert measured.record.state is TrialState.VALID
    assert measured.trees is not None
    assert len(measured.trees.steps) == STEPS
    first = measured.requests.sort_values("sent").iloc[0]
    assert (measured.trees.prompt_id, asked) == (first["prompt_id"], [list(first["prompt_token_ids"])])
    assert measured.counters.verify_steps == measured.requests["verify_steps"].sum()
