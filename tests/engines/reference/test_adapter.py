"""The adapter against the real server with a tiny random model."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from engines.base import Arm, Deployment, Endpoint, EngineError, IdentityError, Method, check_identity
from engines.digests import digest
from engines.reference.adapter import ReferenceEngine
from engines.reference.software import code_digest
from orchestrator.ports import free_port
from tests.engines.reference.served import Client
from tests.engines.reference.tiny import BLOCK, write_drafter, write_target

ENGINE = ReferenceEngine()
PLAIN = Arm("plain", "reference", Method.AUTOREGRESSIVE)
CHAIN = Arm("chain", "reference", Method.DFLASH)
TREE = Arm("tree", "reference", Method.DDTREE, budget=7)
GREEDY: dict[str, Any] = {"prompt": "hello", "temperature": 0, "max_tokens": 24, "return_token_ids": True}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    folder = tmp_path_factory.mktemp("models")
    target, drafter = write_target(folder / "target"), write_drafter(folder / "drafter")
    return Deployment(
        software="tests",
        interpreter=sys.executable,
        target=str(target),
        target_digest=digest(target),
        drafter=str(drafter),
        drafter_digest=digest(drafter),
        device="cpu",
        dtype="float32",
        threads=1,
        max_batch=2,
        max_context=128,
        arguments=("--max-queue", "3"),
    )


@pytest.fixture(scope="module")
def started(deployment: Deployment) -> Any:
    port = free_port()
    process = subprocess.Popen(ENGINE.command(PLAIN, deployment, port))
    yield ENGINE.endpoint(port)
    process.terminate()
    assert process.wait(timeout=30) == 0


@pytest.fixture
async def endpoint(started: Endpoint) -> Endpoint:
    async with asyncio.timeout(60):
        while not await ENGINE.healthy(started):  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.05)
    return started


@pytest.fixture
async def client(endpoint: Endpoint) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        yield Client(endpoint.base_url, session)


async def test_one_process_serves_all_arms_and_says_which(endpoint: Endpoint, deployment: Deployment) -> None:
    commands = {tuple(ENGINE.command(arm, deployment, 1)) for arm in (PLAIN, CHAIN, TREE)}
    assert len(commands) == 1
    forced = dataclasses.replace(TREE, chain=True)
    for arm, block in ((PLAIN, None), (CHAIN, BLOCK), (forced, BLOCK), (TREE, BLOCK)):
        await ENGINE.configure(endpoint, arm)
        identity = await ENGINE.identify(endpoint)
        check_identity(identity, arm, deployment)
        assert identity.block_size == block
        assert identity.settings["max_queue"] == 3
    for wrong in (CHAIN, dataclasses.replace(TREE, budget=6), forced):
        with pytest.raises(IdentityError):
            check_identity(await ENGINE.identify(endpoint), wrong, deployment)


async def test_all_methods_give_the_same_greedy_tokens_and_their_own_counters(
    endpoint: Endpoint, client: Client
) -> None:
    answers = {}
    for arm in (PLAIN, CHAIN, TREE):
        await ENGINE.configure(endpoint, arm)
        before, stages = await ENGINE.counters(endpoint), await ENGINE.stages(endpoint)
        body = (await client.post("/v1/completions", **GREEDY)).body
        mine = ENGINE.request_counters(body)
        assert mine is not None
        assert mine == await ENGINE.counters(endpoint) - before
        assert mine.emitted == body["usage"]["completion_tokens"] - 1
        drafted = {Method.AUTOREGRESSIVE: 0, Method.DFLASH: BLOCK - 1, Method.DDTREE: 7}[arm.method]
        assert (mine.verify_steps > 0, mine.drafted) == (True, drafted * mine.verify_steps)
        assert (await ENGINE.stages(endpoint) - stages).steps == mine.verify_steps
        answers[arm.name] = body["choices"][0]
    assert answers["plain"] == answers["chain"] == answers["tree"]
    assert len(answers["plain"]["token_ids"]) == 24


async def test_draft_trees_hold_what_the_same_request_emits(endpoint: Endpoint, client: Client) -> None:
    await ENGINE.configure(endpoint, TREE)
    choice = (await client.post("/v1/completions", **GREEDY)).body["choices"][0]
    trees = await ENGINE.draft_trees(endpoint, list(b"hello"), 3)
    assert len(trees) == 3
    assert trees[0].nodes[0].token_id == choice["token_ids"][0]
    emitted = [
        token for tree in trees for token in (*(tree.nodes[n].token_id for n in tree.accepted[1:]), tree.bonus_id)
    ]
    assert emitted == choice["token_ids"][1 : 1 + len(emitted)]
    assert all(len(tree.nodes) == 8 for tree in trees)
    await ENGINE.configure(endpoint, PLAIN)
    with pytest.raises(EngineError, match="drafts nothing"):
        await ENGINE.draft_trees(endpoint, list(b"hello"), 3)


async def test_streams_agree_with_full_answers_and_batches_with_single_requests(
    endpoint: Endpoint, client: Client
) -> None:
    await ENGINE.configure(endpoint, TREE)
    messages = [{"role": "user", "content": "hi"}]
    body: dict[str, Any] = {"messages": messages, "temperature": 0.8, "seed": 5, "max_tokens": 30}
    body |= ENGINE.request_fields()
    answers = await asyncio.gather(*(client.post("/v1/chat/completions", **body) for _ in range(4)))
    events = await client.stream("/v1/chat/completions", **body)
    texts = {answer.body["choices"][0]["message"]["content"] for answer in answers}
    assert texts == {"".join(event["choices"][0]["delta"]["content"] for event in events)}


async def test_the_ranking_is_the_one_of_plain_decoding_whatever_the_method(endpoint: Endpoint, client: Client) -> None:
    await ENGINE.configure(endpoint, TREE)
    answer = (await client.post("/v1/completions", **GREEDY)).body
    tokens = answer["choices"][0]["token_ids"]
    for at in (0, 3, 11):
        found = await ENGINE.ranking(endpoint, [*b"hello", *tokens[:at]])
        assert found.token_ids[0] == tokens[at]
        assert len(set(found.token_ids)) == 5
        assert list(found.log_probs) == sorted(found.log_probs, reverse=True)
    top = {"prompt": [*b"hello"], "temperature": 0, "max_tokens": 1, "logprobs": 20, "return_token_ids": True}
    logprobs = (await client.post("/v1/completions", **top)).body["choices"][0]["logprobs"]
    best = logprobs["top_token_logprobs"][0]
    assert best == sorted(best, reverse=True)
    assert math.exp(best[0]) < 1
    assert (await ENGINE.ranking(endpoint, [*b"hello"])).log_probs == pytest.approx(best[:5], abs=1e-6)


async def test_the_context_is_filled_to_the_last_token(endpoint: Endpoint, client: Client) -> None:
    await ENGINE.configure(endpoint, TREE)
    full = await client.post("/v1/completions", prompt="x" * 100, max_tokens=28, temperature=0, ignore_eos=True)
    over = await client.post("/v1/completions", prompt="x" * 100, max_tokens=29, temperature=0)
    assert full.body["usage"]["total_tokens"] == 128
    assert (over.status, over.error["code"]) == (400, "context_length_exceeded")


async def test_what_goes_wrong_is_one_line(endpoint: Endpoint) -> None:
    nobody = ENGINE.endpoint(free_port())
    assert not await ENGINE.healthy(nobody)
    for call in (ENGINE.identify(nobody), ENGINE.counters(nobody), ENGINE.configure(nobody, PLAIN)):
        with pytest.raises(EngineError, match=nobody.base_url) as caught:
            await call
        assert "\n" not in str(caught.value)
    with pytest.raises(EngineError, match="HTTP 400: token id 999999 is outside"):
        await ENGINE.ranking(endpoint, [999_999])
    with pytest.raises(EngineError, match=r"HTTP 400: .*budget"):
        await ENGINE.configure(endpoint, dataclasses.replace(TREE, budget=None))
    with pytest.raises(EngineError, match="cannot be read"):
        ENGINE.request_counters({"usage": {"speculative": {"verify_steps": 1}}})
    assert ENGINE.request_counters({"usage": {}}) is None


@pytest.mark.parametrize(
    ("arm", "says"),
    [
        (Arm("a", "reference", Method.NGRAM), "no method ngram"),
        (Arm("a", "reference", Method.DDTREE), "`budget` is required"),
        (Arm("a", "reference", Method.DFLASH, budget=3), "`budget` is required"),
        (Arm("a", "reference", Method.AUTOREGRESSIVE, options={"x": 1}), "remove x"),
    ],
)
def test_arms_that_it_cannot_run_are_refused(arm: Arm, says: str, deployment: Deployment) -> None:
    with pytest.raises(EngineError, match=says):
        ENGINE.validate(arm, deployment)
    ENGINE.validate(TREE, deployment)


@pytest.mark.parametrize("settings", [{"dtype": "float16"}, {"max_context": 513}, {"max_context": 1}])
def test_what_is_refused_would_not_start(settings: dict[str, Any], deployment: Deployment) -> None:
    hopeless = dataclasses.replace(deployment, **settings)
    with pytest.raises(EngineError, match=r"float16|max_context"):
        ENGINE.validate(PLAIN, hopeless)
    command = ENGINE.command(PLAIN, hopeless, free_port())
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert str(next(iter(settings.values()))) in done.stderr


def test_the_software_names_versions_and_our_code(tmp_path: Path) -> None:
    line = ENGINE.software(sys.executable)
    assert line.startswith("orchestrate ")
    assert ", torch " in line
    for interpreter in (str(tmp_path / "python"), "/bin/false"):
        with pytest.raises(EngineError, match=interpreter):
            ENGINE.software(interpreter)


def test_the_code_digest_follows_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    source = tmp_path / "a.py"
    source.write_text("x = 1")
    first = code_digest(tmp_path)
    (tmp_path / "train" / "b.py").write_text("y")
    (tmp_path / "notes.md").write_text("z")
    assert code_digest(tmp_path) == first
    source.write_text("x = 2")
    changed = code_digest(tmp_path)
    source.rename(tmp_path / "c.py")
    assert len({first, changed, code_digest(tmp_path)}) == 3
