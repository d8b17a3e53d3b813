"""Requests before a measurement, until their speed no longer changes.

A round sends the block's first prompts at the trial's concurrency, so that the shapes measured are the shapes warmed.
Every round sends the same prompts: under speculation the time a token takes depends on the text, and only equal work
can tell whether the engine has settled. Answers are short and thrown away; the prefix cache is flushed afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engines.base import EngineError
from orchestrator.load.client import LoadClient
from orchestrator.prompts import Prompt
from orchestrator.spec import WarmupSpec


@dataclass(frozen=True)
class Warmup:
    """What the warm-up took. `seconds_per_token` holds one mean a round."""

    requests: int
    flat: bool
    seconds_per_token: tuple[float, ...]


async def warm_up(client: LoadClient, prompts: Sequence[Prompt], concurrency: int, spec: WarmupSpec) -> Warmup:
    """Send rounds until two in a row agree within the tolerance, or `max_requests` rounds are over."""
    rounds: list[float] = []
    batch = prompts[:concurrency]
    while len(rounds) < spec.max_requests and not _flat(rounds, spec):
        result = await client.run(batch, len(batch), spec.max_tokens)
        if result.failure:
            raise EngineError(f"warm-up {result.failure}")
        rounds.append(sum(answer.seconds_per_token() for answer in result.answers) / len(batch))
    return Warmup(len(rounds) * len(batch), _flat(rounds, spec), tuple(rounds))


def _flat(rounds: Sequence[float], spec: WarmupSpec) -> bool:
    if len(rounds) < max(2, spec.min_requests):
        return False
    before, after = rounds[-2:]
    return abs(after - before) <= spec.tolerance * min(before, after)
