"""HTTP with servers that answer in this project's own JSON: /health, /server_info, /configure.

Every failure is an EngineError of one line that names the request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import aiohttp

from engines.base import DraftNode, DraftTree, Endpoint, EngineError, Identity, Method, SpecCounters, StageTimes
from engines.messages import error_message, one_line

_PROBE_S = 2.0
_CALL_S = 30.0
_RECORDING_S = 120.0

Json = Mapping[str, Any]


async def healthy(endpoint: Endpoint) -> bool:
    """Whether /health answers 200. Whatever else happens, a refused connection included, is no."""
    try:
        async with _session(endpoint, _PROBE_S) as session, session.get(f"{endpoint.base_url}/health") as response:
            return response.status == 200
    except (aiohttp.ClientError, OSError, TimeoutError):
        return False


async def get_json(endpoint: Endpoint, path: str) -> Json:
    return await _call("GET", endpoint, path, None, _CALL_S)


async def post_json(endpoint: Endpoint, path: str, body: Json, timeout_s: float = _CALL_S) -> Json:
    return await _call("POST", endpoint, path, body, timeout_s)


async def get_text(endpoint: Endpoint, path: str) -> str:
    return await _text("GET", endpoint, path, None, _CALL_S)


async def post(endpoint: Endpoint, path: str) -> None:
    """A call without a body whose answer says nothing but that it was done."""
    await _text("POST", endpoint, path, None, _CALL_S)


async def identity(endpoint: Endpoint) -> Identity:
    info = await get_json(endpoint, "/server_info")
    try:
        return Identity(
            engine=info["engine"],
            version=info["version"],
            method=Method(info["method"]),
            budget=info["budget"],
            chain=info["chain"],
            block_size=info["block_size"],
            dtype=info["dtype"],
            device=info["device"],
            attention_backend=info["attention_backend"],
            target_digest=info["target_digest"],
            drafter_digest=info["drafter_digest"],
            settings=dict(info["settings"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(endpoint, "identity", error) from error


async def counters(endpoint: Endpoint) -> SpecCounters:
    info = await get_json(endpoint, "/server_info")
    try:
        return parse_counters(info["counters"])
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(endpoint, "counters", error) from error


async def stages(endpoint: Endpoint) -> StageTimes:
    info = await get_json(endpoint, "/server_info")
    try:
        return StageTimes(**info["stages"])
    except (KeyError, TypeError) as error:
        raise _unreadable(endpoint, "stages", error) from error


async def draft_trees(endpoint: Endpoint, token_ids: list[int], steps: int) -> tuple[DraftTree, ...]:
    answer = await post_json(endpoint, "/draft_trees", {"prompt": token_ids, "steps": steps}, _RECORDING_S)
    try:
        return tuple(_draft_tree(tree) for tree in answer["trees"])
    except (KeyError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {one_line(str(error))}"
        raise EngineError(f"{endpoint.base_url}/draft_trees: the trees cannot be read ({reason})") from error


def _draft_tree(data: Json) -> DraftTree:
    nodes = tuple(DraftNode(**node) for node in data["nodes"])
    return DraftTree(nodes, tuple(data["accepted"]), data["bonus_id"], data["bonus_text"])


def usage_counters(chunk: Json) -> SpecCounters | None:
    """`usage.speculative` of a final chunk; None where it has none. EngineError where it cannot be read."""
    usage = chunk.get("usage")
    if not isinstance(usage, Mapping) or "speculative" not in usage:
        return None
    try:
        return parse_counters(usage["speculative"])
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError(f"usage.speculative cannot be read: {usage['speculative']!r:.200}") from error


def parse_counters(data: Json) -> SpecCounters:
    return SpecCounters(
        verify_steps=int(data["verify_steps"]),
        drafted=int(data["drafted"]),
        accepted=int(data["accepted"]),
        emitted=int(data["emitted"]),
        accepted_by_depth=tuple(int(steps) for steps in data["accepted_by_depth"]),
    )


def _session(endpoint: Endpoint, timeout_s: float) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout_s), headers=endpoint.headers)


async def _call(verb: str, endpoint: Endpoint, path: str, body: Json | None, timeout_s: float) -> Json:
    try:
        answer = json.loads(await _text(verb, endpoint, path, body, timeout_s))
    except ValueError as error:
        raise EngineError(f"{verb} {endpoint.base_url}{path}: the answer is not JSON") from error
    if not isinstance(answer, dict):
        raise EngineError(f"{verb} {endpoint.base_url}{path}: the answer is not a JSON object")
    return answer


async def _text(verb: str, endpoint: Endpoint, path: str, body: Json | None, timeout_s: float) -> str:
    url = f"{endpoint.base_url}{path}"
    try:
        async with _session(endpoint, timeout_s) as session, session.request(verb, url, json=body) as response:
            text = await response.text()
            if response.status != 200:
                raise EngineError(f"{verb} {url}: HTTP {response.status}: {error_message(text)}")
            return text
    except TimeoutError as error:
        raise EngineError(f"{verb} {url}: no answer within {timeout_s:g} s") from error
    except (aiohttp.ClientError, OSError) as error:
        raise EngineError(f"{verb} {url}: {one_line(str(error) or type(error).__name__)}") from error


def _unreadable(endpoint: Endpoint, what: str, error: Exception) -> EngineError:
    reason = f"{type(error).__name__}: {one_line(str(error))}"
    return EngineError(f"{endpoint.base_url}/server_info: the {what} cannot be read ({reason})")
