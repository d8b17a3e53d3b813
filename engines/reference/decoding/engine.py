"""The decoding engine: waiting requests in, token emissions out. One thread uses it.

Prefill goes first: a step runs one chunk of the oldest waiting prompt while a slot is free, else one decode step over
all running sequences. There is no prefix cache: every request computes its whole prompt.
"""

from collections import deque

import torch

from engines.reference.decoding.clock import StageClock
from engines.reference.decoding.decode import Decoder, StepTokens
from engines.reference.decoding.request import (
    DraftTree,
    Emission,
    FinishReason,
    GenerationRequest,
    Method,
    SamplingParams,
    SpecStats,
    StageTimes,
    TopLogprobs,
)
from engines.reference.decoding.sequence import Sequence
from engines.reference.model.drafter import Drafter
from engines.reference.model.target import Target

__all__ = [
    "Emission",
    "Engine",
    "FinishReason",
    "GenerationRequest",
    "Method",
    "SamplingParams",
    "SpecStats",
    "StageTimes",
    "TopLogprobs",
]

PREFILL_CHUNK = 256
"""Prompt tokens of one prefill step: wide enough for full speed, short enough that a cancellation is soon heard."""


class Engine:
    """Decodes up to `max_batch` requests together; prompt and output share `max_context` tokens."""

    def __init__(
        self, target: Target, drafter: Drafter | None, method: Method, max_batch: int, max_context: int
    ) -> None:
        """ValueError where the method needs a drafter that is absent or a limit makes no sense."""
        if max_batch < 1 or not 2 <= max_context <= target.config.max_positions:
            raise ValueError(
                f"max_batch {max_batch} must be at least 1 and max_context {max_context} must lie in "
                f"2..{target.config.max_positions}, the positions of the target"
            )
        self._target, self._drafter = target, drafter
        self._max_batch, self._max_context = max_batch, max_context
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._prefilling: Sequence | None = None
        self.reset()
        self._use(method)

    @property
    def method(self) -> Method:
        return self._method

    def submit(self, request: GenerationRequest) -> None:
        """Queue a request. ValueError where it can never run."""
        prompt, params = request.prompt_ids, request.params
        vocabulary = self._target.config.vocab_size
        if not prompt:
            raise ValueError("the prompt is empty")
        if len(prompt) >= self._max_context:
            raise ValueError(
                f"the prompt has {len(prompt)} tokens, which leaves no room in a context of {self._max_context}"
            )
        if min(prompt) < 0 or max(prompt) >= vocabulary:
            raise ValueError(f"prompt token ids must lie in 0..{vocabulary - 1}")
        if params.logprobs is not None and params.logprobs > vocabulary:
            raise ValueError(f"logprobs {params.logprobs} exceeds the vocabulary of {vocabulary}")
        if any(sequence.request.request_id == request.request_id for sequence in self._sequences()):
            raise ValueError(f"request id {request.request_id} is already in use")
        eos = () if params.ignore_eos else self._target.config.eos_token_ids
        room = min(params.max_tokens, self._max_context - len(prompt))
        self._waiting.append(Sequence(request, frozenset((*eos, *params.stop_token_ids)), room))

    def cancel(self, request_id: str) -> None:
        """Forget a request and free its slot; unknown ids are ignored."""
        for sequence in self._sequences():
            if sequence.request.request_id == request_id:
                self._drop(sequence)
                break
        self._pause_if_idle()

    def has_work(self) -> bool:
        """Whether a request waits or runs."""
        return bool(self._waiting or self._running or self._prefilling)

    @property
    def running(self) -> int:
        return len(self._running) + (self._prefilling is not None)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def set_method(self, method: Method) -> None:
        """Change how tokens are decoded. ValueError unless idle, and where the method needs an absent drafter."""
        if self.has_work():
            raise ValueError("the method changes only while no request waits or runs")
        self._use(method)

    def record(self, request: GenerationRequest, steps: int) -> list[DraftTree]:
        """The draft trees of a request's first verify steps, at most `steps`; its tokens are thrown away. It counts as
        any other. ValueError unless idle, for a request that can never run, and where nothing is drafted."""
        if self.has_work():
            raise ValueError("draft trees are recorded only while no request waits or runs")
        if self._method.name == "autoregressive":
            raise ValueError("method autoregressive drafts nothing")
        trees: list[DraftTree] = []
        self.submit(request)
        self._decoder.recording = trees
        try:
            while self.has_work() and len(trees) < steps:
                self.step()
        finally:
            self._decoder.recording = None
            self.cancel(request.request_id)
        return trees

    def stats(self) -> SpecStats:
        """Counters of all requests since the start or the last reset."""
        return self._stats

    def stage_times(self) -> StageTimes:
        """Stage times since the start or the last reset."""
        return self._clock.times

    def reset(self) -> None:
        """Zero the counters and stage times."""
        self._stats = SpecStats()
        self._clock = StageClock(self._target.device)

    @torch.inference_mode()
    def step(self) -> list[Emission]:
        """Run one prefill chunk or one decode step; the tokens that came of it."""
        if not self.has_work():
            return []
        self._clock.start()
        if self._prefilling is None and self._waiting and len(self._running) < self._max_batch:
            self._prefilling = self._waiting.popleft()
        emissions = self._prefill(self._prefilling) if self._prefilling is not None else self._decode()
        self._pause_if_idle()
        return emissions

    def _pause_if_idle(self) -> None:
        if not self.has_work():
            self._clock.pause()

    def _prefill(self, sequence: Sequence) -> list[Emission]:
        result = self._decoder.prefill(sequence, len(self._running), PREFILL_CHUNK)
        emissions = []
        if result is not None:
            self._prefilling = None
            emissions.append(sequence.emission(sequence.keep(result.tokens), result.logprobs))
            if sequence.finish_reason is None:
                self._running.append(sequence)
        self._clock.times.prefill_steps += 1
        self._clock.lap("prefill")
        return emissions

    def _decode(self) -> list[Emission]:
        batch = list(self._running)
        results = self._decoder.step(batch, self._clock)
        emissions = [self._emit(sequence, result) for sequence, result in zip(batch, results, strict=True)]
        for sequence in reversed(batch):
            if sequence.finish_reason is not None:
                self._drop(sequence)
        self._clock.times.decode_steps += 1
        self._clock.lap("host")
        return emissions

    def _emit(self, sequence: Sequence, result: StepTokens) -> Emission:
        kept = sequence.keep(result.tokens)
        accepted = min(len(result.tokens) - 1, len(kept))
        for stats in (sequence.stats, self._stats):
            stats.record(result.drafted, accepted, len(kept))
        return sequence.emission(kept, result.logprobs)

    def _drop(self, sequence: Sequence) -> None:
        """Take a sequence out; the last running one moves into its slot, so that running slots stay neighbours."""
        if sequence in self._waiting:
            self._waiting.remove(sequence)
        elif sequence is self._prefilling:
            self._prefilling = None
        else:
            self._vacate(self._running.index(sequence))

    def _vacate(self, slot: int) -> None:
        last = self._running.pop()
        end = len(self._running)
        if slot != end:
            self._decoder.move(end, slot, last.prefix_len)
            self._running[slot] = last
        if self._prefilling is not None:
            self._decoder.move(end + 1, end, self._prefilling.prefix_len)

    def _sequences(self) -> list[Sequence]:
        prefilling = [] if self._prefilling is None else [self._prefilling]
        return [*self._waiting, *prefilling, *self._running]

    def _use(self, method: Method) -> None:
        if method.name != "autoregressive" and self._drafter is None:
            raise ValueError(f"method {method.name} needs a drafter, and none is loaded")
        self._method = method
        self._decoder = Decoder(self._target, self._drafter, method, self._max_batch, self._max_context)
