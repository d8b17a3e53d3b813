"""One request while it is decoded: what is in its caches, what comes next, and when it ends."""

from dataclasses import dataclass, field, replace

from engines.reference.decoding.request import Emission, FinishReason, GenerationRequest, SpecStats, TopLogprobs


@dataclass(eq=False)
class Sequence:
    """`prefix_len`: tokens whose keys are cached. `seed`: the token emitted last, whose keys are not.

    `room`: tokens that may still be emitted, by max_tokens and by the context limit.
    """

    request: GenerationRequest
    stop_ids: frozenset[int]
    room: int
    prefix_len: int = 0
    seed: int = -1
    stats: SpecStats = field(default_factory=SpecStats)
    finish_reason: FinishReason | None = None

    @property
    def prefilled(self) -> bool:
        return self.prefix_len >= len(self.request.prompt_ids)

    def keep(self, tokens: list[int]) -> list[int]:
        """Those of the new tokens that are emitted: up to a stop token, included, and while there is room."""
        kept = tokens[: self.room]
        stop = next((index for index, token in enumerate(kept) if token in self.stop_ids), None)
        if stop is not None:
            kept = kept[: stop + 1]
        self.room -= len(kept)
        if stop is not None:
            self.finish_reason = "stop"
        elif self.room == 0:
            self.finish_reason = "length"
        self.seed = kept[-1]
        return kept

    def emission(self, tokens: list[int], logprobs: tuple[TopLogprobs, ...]) -> Emission:
        stats = replace(self.stats, accepted_by_depth=list(self.stats.accepted_by_depth))
        return Emission(self.request.request_id, tokens, self.finish_reason, stats, logprobs[: len(tokens)])
