"""The HTTP contract, over real HTTP, with an engine that plays a script."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from engines.base import Identity
from tests.engines.reference.scripted import EOS, ScriptedEngine, scripted_model
from tests.engines.reference.served import Client, served, until

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
TEXT = ScriptedEngine().answer
GREEDY = {"prompt": "hi", "temperature": 0, "max_tokens": 100}


def usage_of(events: list[dict[str, Any]]) -> dict[str, Any]:
    *chunks, last = events
    assert all("usage" not in chunk for chunk in chunks)
    assert last["choices"] == []
    usage: dict[str, Any] = last["usage"]
    return usage


def joined(events: list[dict[str, Any]]) -> str:
    return "".join(choice["text"] for event in events for choice in event["choices"])


async def test_a_completion_carries_text_ids_usage_and_counters() -> None:
    async with served(ScriptedEngine()) as client:
        answer = await client.post(COMPLETIONS, **GREEDY, return_token_ids=True)
    size = len(TEXT.encode())
    choice = answer.body["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == (TEXT, "stop")
    assert choice["token_ids"] == [*TEXT.encode(), EOS]
    assert answer.body["prompt_token_ids"] == [*b"hi"]
    usage = answer.body["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (2, size + 1, size + 3)
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}
    # One token from the prefill, then three a step: every step but the last, cut one, accepts two drafts.
    steps = -(-size // 3)
    assert usage["speculative"]["verify_steps"] == steps
    assert usage["speculative"]["emitted"] == size
    assert usage["speculative"]["accepted_by_depth"][0] == steps


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 100])
async def test_a_stream_says_what_the_full_answer_says(chunk: int) -> None:
    async with served(ScriptedEngine(chunk=chunk)) as client:
        body = GREEDY | {"return_token_ids": True}
        whole = (await client.post(COMPLETIONS, **body)).body
        events = await client.stream(COMPLETIONS, **body, stream_options={"include_usage": True})
    assert usage_of(events) == whole["usage"]
    assert joined(events) == whole["choices"][0]["text"] == TEXT
    ids = [token_id for event in events for choice in event["choices"] for token_id in choice["token_ids"]]
    assert ids == whole["choices"][0]["token_ids"]
    assert events[0]["prompt_token_ids"] == whole["prompt_token_ids"]
    assert [event["choices"][0]["finish_reason"] for event in events[:-1]] == [None] * (len(events) - 2) + ["stop"]
    # One chunk a decode step.
    assert len(events) - 2 == whole["usage"]["speculative"]["verify_steps"]
    assert all("\ufffd" not in json.dumps(event, ensure_ascii=False) for event in events)


async def test_chat_renders_the_template_and_streams_deltas() -> None:
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]},
    ]
    body: dict[str, Any] = {"messages": messages, "temperature": 0, "return_token_ids": True}
    async with served(ScriptedEngine()) as client:
        whole = (await client.post(CHAT, **body)).body
        events = await client.stream(CHAT, **body)
    assert bytes(whole["prompt_token_ids"]).decode() == "<system>be brief<user>hi<assistant>"
    assert whole["object"] == "chat.completion"
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": TEXT}
    assert events[0]["object"] == "chat.completion.chunk"
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert all("role" not in event["choices"][0]["delta"] for event in events[1:])
    assert "".join(event["choices"][0]["delta"]["content"] for event in events) == TEXT
    assert all("usage" not in event for event in events)


async def test_length_ends_at_max_tokens_and_flushes_half_a_character() -> None:
    async with served(ScriptedEngine(answer="a\u20ac")) as client:
        answer = (await client.post(COMPLETIONS, prompt="x", temperature=0, max_tokens=3)).body
        chat = (await client.post(CHAT, messages=[{"role": "user", "content": "x"}], max_completion_tokens=2)).body
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["choices"][0]["text"] == "a\ufffd"
    assert answer["usage"]["completion_tokens"] == 3
    assert chat["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("chunk", [1, 3, 50])
async def test_a_stop_string_over_several_tokens_ends_the_answer(chunk: int) -> None:
    engine = ScriptedEngine(answer="one two END three", chunk=chunk, step_s=0.001)
    async with served(engine) as client:
        events = await client.stream(
            COMPLETIONS, **GREEDY, stop=["END", "nope"], return_token_ids=True, stream_options={"include_usage": True}
        )
        whole = (await client.post(COMPLETIONS, **GREEDY, stop="END")).body
        info = (await client.get("/server_info")).body
    assert joined(events) == whole["choices"][0]["text"] == "one two "
    assert events[-2]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"] == "stop"
    ids = [token_id for event in events for choice in event["choices"] for token_id in choice["token_ids"]]
    assert bytes(ids) == b"one two END"
    assert usage_of(events)["completion_tokens"] == whole["usage"]["completion_tokens"] == len(b"one two END")
    assert info["running"] == 0


async def test_a_stop_token_is_counted_but_not_shown() -> None:
    async with served(ScriptedEngine(answer="abcde")) as client:
        answer = (await client.post(COMPLETIONS, **GREEDY, stop_token_ids=[ord("c")], return_token_ids=True)).body
    assert answer["choices"][0]["text"] == "ab"
    assert answer["choices"][0]["token_ids"] == [*b"abc"]
    assert answer["choices"][0]["finish_reason"] == "stop"


async def test_ignore_eos_goes_on_to_max_tokens() -> None:
    async with served(ScriptedEngine(answer="ab")) as client:
        answer = (await client.post(COMPLETIONS, prompt="x", temperature=0, max_tokens=7, ignore_eos=True)).body
    assert (answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]) == ("abababa", "length")


async def test_logprobs_give_the_exact_gap() -> None:
    body = {"prompt": [104, 105], "temperature": 0, "max_tokens": 2, "logprobs": 2, "return_token_ids": True}
    async with served(ScriptedEngine(answer="AB")) as client:
        logprobs = (await client.post(COMPLETIONS, **body)).body["choices"][0]["logprobs"]
        events = await client.stream(COMPLETIONS, **body)
    assert logprobs == {
        "tokens": ["A", "B"],
        "token_logprobs": [-0.5, -0.5],
        "top_logprobs": [{"A": -0.5, "B": -1.75}, {"B": -0.5, "C": -1.75}],
        "top_token_ids": [[65, 66], [66, 67]],
        "top_token_logprobs": [[-0.5, -1.75], [-0.5, -1.75]],
    }
    assert [event["choices"][0]["logprobs"]["tokens"] for event in events] == [["A"], ["B"]]


async def test_a_sampled_answer_states_its_seed_and_can_be_had_again() -> None:
    async with served(ScriptedEngine()) as client:
        first = (await client.post(COMPLETIONS, prompt="x", max_tokens=20)).body
        again = (await client.post(COMPLETIONS, prompt="x", max_tokens=20, seed=first["seed"])).body
        other = (await client.post(COMPLETIONS, prompt="x", max_tokens=20)).body
        stream = await client.stream(COMPLETIONS, prompt="x", max_tokens=20, seed=first["seed"])
    assert again["choices"] == first["choices"]
    assert (other["seed"], other["choices"]) != (first["seed"], first["choices"])
    assert (stream[0]["seed"], joined(stream)) == (first["seed"], first["choices"][0]["text"])


HARMLESS = {
    "user": "me", "metadata": {"a": "b"}, "n": 1, "best_of": None, "echo": False, "logit_bias": {},
    "presence_penalty": 0.0, "frequency_penalty": 0, "response_format": {"type": "text"}, "suffix": None,
    "tools": [], "model": "target", "top_p": 1, "store": False,
}  # fmt: skip


async def test_fields_that_change_nothing_are_taken() -> None:
    async with served(ScriptedEngine()) as client:
        answer = await client.post(COMPLETIONS, **GREEDY, **HARMLESS)
    assert (answer.status, answer.body["choices"][0]["text"]) == (200, TEXT)


@pytest.mark.parametrize(
    ("changes", "param", "says"),
    [
        ({"n": 2}, None, "`n` is not supported"),
        ({"n": True}, None, "`n` is not supported"),
        ({"logit_bias": {"5": 1}}, None, "`logit_bias` is not supported"),
        ({"tools": [{"type": "function"}]}, None, "`tools` is not supported"),
        ({"response_format": {"type": "json_object"}}, None, "`response_format` is not supported"),
        ({"frobnicate": 1}, "frobnicate", "not a field"),
        ({"temperature": -1}, "temperature", "greater than or equal to 0"),
        ({"temperature": "hot"}, "temperature", "valid number"),
        ({"top_p": 0}, "top_p", "greater than 0"),
        ({"max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
        ({"max_tokens": "9"}, "max_tokens", "valid integer"),
        ({"logprobs": 0}, "logprobs", "greater than or equal to 1"),
        ({"logprobs": 21}, "logprobs", "less than or equal to 20"),
        ({"stop": [""]}, "stop", "at least 1 character"),
        ({"prompt": ""}, "prompt", "at least 1 character"),
        ({"prompt": []}, "prompt", "at least 1 item"),
        ({"prompt": ["a", "b"]}, "prompt", "valid integer"),
        ({"prompt": [1, -1]}, "prompt", "greater than or equal to 0"),
        ({"prompt": [1, 257]}, "prompt", "outside the vocabulary of 257"),
        ({"prompt": "\ud800"}, "prompt", "valid string"),
        ({"max_tokens": 255}, "max_tokens", "context is 256 tokens"),
        ({"stream_options": {"include_usage": True}}, None, "only allowed with `stream: true`"),
        ({"prompt": "13 bytes long"}, None, "scripted refusal"),
        ({"prompt": "13 bytes long", "stream": True}, None, "scripted refusal"),
    ],
)
async def test_bad_requests_get_400_and_a_reason(changes: dict[str, Any], param: str | None, says: str) -> None:
    async with served(ScriptedEngine(refuse=13)) as client:
        answer = await client.post(COMPLETIONS, **GREEDY | changes)
        after = await client.post(COMPLETIONS, **GREEDY)
    assert answer.status == 400
    assert says in answer.error["message"]
    assert (answer.error["type"], answer.error["param"]) == ("invalid_request_error", param)
    assert after.body["choices"][0]["text"] == TEXT


async def test_context_length_has_openai_s_code() -> None:
    async with served(ScriptedEngine()) as client:
        answer = await client.post(COMPLETIONS, **GREEDY | {"prompt": "x" * 300})
    assert answer.error["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([], "at least 1 item"),
        ([{"role": "tool", "content": "x"}], "'system', 'user' or 'assistant'"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}], "Input should be 'text'"),
        ([{"role": "user"}], "Field required"),
        ([{"role": "user", "content": "bad"}], "the model's chat template refuses these messages: no bad words"),
    ],
)
async def test_bad_messages_get_400(messages: list[dict[str, Any]], says: str) -> None:
    template = "{% if messages[0].content == 'bad' %}{{ raise_exception('no bad words') }}{% endif %}"
    async with served(ScriptedEngine(), scripted_model(template)) as client:
        answer = await client.post(CHAT, messages=messages)
    assert (answer.status, answer.error["param"]) == (400, "messages")
    assert says in answer.error["message"]


async def test_chat_without_a_template_is_refused() -> None:
    async with served(ScriptedEngine(), scripted_model(None)) as client:
        answer = await client.post(CHAT, messages=[{"role": "user", "content": "x"}])
        logprobs = await client.post(CHAT, messages=[{"role": "user", "content": "x"}], logprobs=True)
    assert (answer.status, logprobs.status) == (400, 400)
    assert "no chat template" in answer.error["message"]
    assert "`logprobs` is not supported" in logprobs.error["message"]


async def test_unknown_models_paths_and_methods() -> None:
    async with served(ScriptedEngine()) as client:
        model = await client.post(COMPLETIONS, **GREEDY, model="gpt-5")
        path = await client.post("/v1/embeddings", input="x")
        verb = await client.get(COMPLETIONS)
        listed = (await client.get("/v1/models")).body["data"]
    assert (model.status, model.error["code"]) == (404, "model_not_found")
    assert (path.status, path.error["type"]) == (404, "not_found_error")
    assert (verb.status, verb.error["type"]) == (405, "invalid_request_error")
    assert [entry["id"] for entry in listed] == ["target"]


@pytest.mark.parametrize("sent", [b"{nonsense", b"", b"[1]", b'"x"', b"\xff\xfe", b"[" * 100_000])
async def test_what_is_no_json_object_gets_400(sent: bytes) -> None:
    async with served(ScriptedEngine()) as client:
        url, headers = client.base_url + COMPLETIONS, {"content-type": "application/json"}
        async with client.session.post(url, data=sent, headers=headers) as response:
            assert response.status == 400
            assert (await response.json())["error"]["type"] == "invalid_request_error"


async def test_a_body_that_is_too_large_gets_413() -> None:
    async with served(ScriptedEngine()) as client:
        answer = await client.post(COMPLETIONS, prompt="x" * (17 * 2**20))
    assert (answer.status, answer.error["type"]) == (413, "invalid_request_error")


async def test_a_full_queue_gets_429() -> None:
    async with served(ScriptedEngine(answer="x" * 50, chunk=1, step_s=0.01), max_batch=1, max_queue=1) as client:
        asked = [asyncio.create_task(client.post(COMPLETIONS, **GREEDY)) for _ in range(3)]
        statuses = sorted([(await answer).status for answer in asked])
        after = await client.post(COMPLETIONS, **GREEDY)
    assert statuses == [200, 200, 429]
    assert after.status == 200


async def test_concurrent_requests_do_not_mix() -> None:
    async with served(ScriptedEngine(step_s=0.001)) as client:
        seeds = range(8)
        answers = await asyncio.gather(*(client.post(COMPLETIONS, prompt="x", max_tokens=20, seed=s) for s in seeds))
        alone = [await client.post(COMPLETIONS, prompt="x", max_tokens=20, seed=s) for s in seeds]
    assert [a.body["choices"] for a in answers] == [a.body["choices"] for a in alone]
    assert len({a.body["choices"][0]["text"] for a in answers}) == 8


async def start_stream(client: Client) -> Any:
    response = await client.session.post(client.base_url + COMPLETIONS, json=GREEDY | {"stream": True})
    await response.content.readuntil(b"\n\n")
    return response


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_cancels_its_request(stream: bool) -> None:
    engine = ScriptedEngine(answer="x" * 200, chunk=1, step_s=0.01)
    async with served(engine) as client:
        body = GREEDY | {"stream": stream, "max_tokens": 200}
        asked = asyncio.create_task(client.session.post(client.base_url + COMPLETIONS, json=body))
        await until(lambda: engine.steps_run >= 3)
        if stream:
            (await asked).close()
        else:
            asked.cancel()
        await until(lambda: bool(engine.cancelled))
        info = (await client.get("/server_info")).body
        metrics = (await client.get("/metrics")).body
    assert engine.steps_run < 100
    assert (info["running"], len(engine.plays)) == (0, 0)
    assert 'orchestrate_reference_requests_total{outcome="cancelled"} 1.0' in metrics


async def test_configure_only_while_idle() -> None:
    engine = ScriptedEngine(answer="x" * 90, chunk=1, step_s=0.01)
    async with served(engine) as client:
        response = await start_stream(client)
        busy = await client.post("/configure", method="ddtree", budget=7)
        response.close()
        await until(lambda: bool(engine.cancelled))
        idle = await client.post("/configure", method="ddtree", budget=7, chain=True)
        info = (await client.get("/server_info")).body
    assert (busy.status, busy.error["type"]) == (409, "conflict_error")
    assert idle.body == {"method": "ddtree", "budget": 7, "chain": True}
    assert (engine.method.name, engine.method.budget, engine.method.chain) == ("ddtree", 7, True)
    assert (info["method"], info["budget"], info["chain"], info["block_size"]) == ("ddtree", 7, True, 4)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"method": "ddtree"}, "needs a budget"),
        ({"method": "autoregressive", "budget": 3}, "neither a budget nor chain"),
        ({"method": "magic"}, "'autoregressive', 'dflash' or 'ddtree'"),
        ({"method": "dflash"}, "needs a drafter"),
    ],
)
async def test_a_method_that_cannot_be_gets_400(body: dict[str, Any], says: str) -> None:
    async with served(ScriptedEngine()) as client:
        answer = await client.post("/configure", **body)
        info = (await client.get("/server_info")).body
    assert answer.status == 400
    assert says in answer.error["message"]
    assert info["method"] == "autoregressive"


async def test_draft_trees_show_their_tokens_as_text() -> None:
    async with served(ScriptedEngine(answer="a <b>")) as client:
        refused = await client.post("/draft_trees", prompt=[1, 2], steps=2)
        await client.post("/configure", method="ddtree", budget=2)
        trees = (await client.post("/draft_trees", prompt=[1, 2], steps=2)).body["trees"]
        bad = [await client.post("/draft_trees", **body) for body in ({"prompt": [], "steps": 1}, {"prompt": [999]})]
    assert (refused.status, "drafts nothing" in refused.error["message"]) == (400, True)
    assert [answer.status for answer in bad] == [400, 400]
    assert len(trees) == 2
    assert trees[0]["nodes"][1] == {"token_id": 32, "text": " ", "parent": 0, "depth": 1, "log_prob": -0.25}
    assert (trees[0]["accepted"], trees[0]["bonus_text"]) == ([0, 1], "<")


async def test_draft_trees_wait_for_nobody() -> None:
    engine = ScriptedEngine(answer="x" * 90, chunk=1, step_s=0.01)
    async with served(engine) as client:
        response = await start_stream(client)
        busy = await client.post("/draft_trees", prompt=[1], steps=1)
        response.close()
        await until(lambda: bool(engine.cancelled))
    assert (busy.status, busy.error["type"]) == (409, "conflict_error")


async def test_server_info_states_identity_counters_and_stages() -> None:
    engine = ScriptedEngine()
    async with served(engine) as client:
        await client.post(COMPLETIONS, **GREEDY)
        info = (await client.get("/server_info")).body
    fields = {name: info[name] for name in Identity.__dataclass_fields__}
    assert fields["engine"] == "reference"
    assert (fields["target_digest"], fields["dtype"], fields["block_size"]) == ("t1", "float32", None)
    assert info["counters"]["verify_steps"] == engine.total.verify_steps > 0
    assert info["stages"]["verify"] == 1.5
    assert info["stages"]["steps"] == engine.steps_run


async def test_metrics_count_requests_and_steps() -> None:
    engine = ScriptedEngine()
    async with served(engine) as client:
        await client.post(COMPLETIONS, **GREEDY)
        metrics = (await client.get("/metrics")).body.splitlines()
    assert 'orchestrate_reference_requests_total{outcome="stop"} 1.0' in metrics
    assert "orchestrate_reference_prompt_tokens_total 2.0" in metrics
    assert f"orchestrate_reference_output_tokens_total {len(TEXT.encode()) + 1}.0" in metrics
    assert f"orchestrate_reference_verify_steps_total {engine.total.verify_steps}.0" in metrics
    assert 'orchestrate_reference_stage_seconds_total{stage="verify"} 1.5' in metrics


@pytest.mark.parametrize("stream", [True, False])
async def test_when_the_engine_dies_running_requests_are_told(stream: bool) -> None:
    async with served(ScriptedEngine(die_at_step=4)) as client:
        if stream:
            events = await client.stream(COMPLETIONS, **GREEDY)
            assert "stopped after a fault" in events[-1]["error"]["message"]
            assert events[-1]["error"]["type"] == "server_error"
        else:
            answer = await client.post(COMPLETIONS, **GREEDY)
            assert (answer.status, answer.error["type"]) == (500, "server_error")
        health = await client.get("/health")
        later = await client.post(COMPLETIONS, **GREEDY)
        metrics = await client.get("/metrics")
    assert (health.status, health.body, later.status, metrics.status) == (500, {"status": "failed"}, 500, 200)
