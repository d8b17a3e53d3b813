"""Running an engine to the end, for tests."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from engines.reference.decoding.engine import (
    Emission,
    Engine,
    GenerationRequest,
    SamplingParams,
    SpecStats,
    TopLogprobs,
)


@dataclass
class Answer:
    tokens: list[int] = field(default_factory=list)
    steps: list[list[int]] = field(default_factory=list)
    logprobs: list[TopLogprobs] = field(default_factory=list)
    finish_reason: str | None = None
    stats: SpecStats = field(default_factory=SpecStats)

    def add(self, emission: Emission) -> None:
        assert self.finish_reason is None, "tokens after the end"
        self.tokens += emission.token_ids
        self.steps.append(emission.token_ids)
        self.logprobs += emission.top_logprobs
        self.finish_reason = emission.finish_reason
        self.stats = emission.stats


def request(name: str, prompt: Iterable[int], **params: object) -> GenerationRequest:
    return GenerationRequest(name, tuple(prompt), SamplingParams(**params))  # type: ignore[arg-type]


def drain(engine: Engine, answers: dict[str, Answer] | None = None) -> dict[str, Answer]:
    """Step until nothing is left to do."""
    answers = {} if answers is None else answers
    while engine.has_work():
        for emission in engine.step():
            answers.setdefault(emission.request_id, Answer()).add(emission)
    return answers


def answer(engine: Engine, prompt: Iterable[int], **params: object) -> Answer:
    """One request, alone."""
    engine.submit(request("only", prompt, **params))
    return drain(engine)["only"]
