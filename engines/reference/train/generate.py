"""Self-generated conversations: the target writes user turns and answers them, thousands of sequences in step.

All sequences of a wave stand at the same position: each step decodes one token for all of them, forced where the chat
template or an opener says what comes, sampled elsewhere. There is no prefill and no padding on the left.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from time import monotonic

import torch
from torch import Tensor

from engines.reference.train.prompts import ChatFrame, Opening
from engines.reference.train.target import KeyValues, Target

log = logging.getLogger(__name__)

OPEN = 1 << 30
"""Position of an end that has not come yet."""
BUCKET = 64
"""Cache lengths read by a step come in multiples of this; one CUDA graph each."""
CHECK_EVERY = 16
USER_TEMPERATURES = (1.0, 0.7)
"""Of user turns, in turn: the first wanders further, the second makes more sense."""
STRAGGLERS = 0.04
"""A wave ends when fewer sequences than this share still run; theirs stay as they are, cut short."""


@dataclass(frozen=True)
class Conversation:
    """Token ids of a whole sequence (int32, on the CPU); the response is tokens[start:]."""

    tokens: Tensor
    start: int

    @property
    def prompt(self) -> tuple[int, ...]:
        return tuple(self.tokens[: self.start].tolist())

    @property
    def response_tokens(self) -> int:
        return len(self.tokens) - self.start


@dataclass(frozen=True)
class Limits:
    """Greatest lengths in tokens."""

    opening: int
    user: int
    response: int


class Wave:
    """State of one batch on the device; its memory, and on CUDA its graphs, serve every wave after the first."""

    def __init__(self, target: Target, frame: ChatFrame, batch: int, limits: Limits):
        self.target, self.batch, self.limits = target, batch, limits
        length = limits.opening + limits.user + len(frame.after) + limits.response
        self.capacity = -(-length // BUCKET) * BUCKET
        device = target.device
        self.after = torch.tensor(frame.after, device=device)
        self.turn_ends = torch.tensor(sorted({frame.after[0], *target.config.stop_ids}), device=device)
        self.stops = torch.tensor(target.config.stop_ids, device=device)
        self.cache = KeyValues.empty(target.config, batch, self.capacity, target.embedding)
        self.tokens = torch.zeros(batch, self.capacity + 1, dtype=torch.long, device=device)
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self.opening, self.user_end, self.response_end = (torch.zeros_like(self.tokens[:, 0]) for _ in range(3))
        self.temperature = torch.zeros(batch, device=device)
        self.user_temperature = torch.tensor(USER_TEMPERATURES, device=device).repeat(batch)[:batch]
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def run(self, openings: list[Opening], temperatures: list[float]) -> list[Conversation]:
        """One conversation per opening, in order; the response of one that was cut short can be empty."""
        self._load(openings, temperatures)
        for step in range(self.capacity - 1):
            self._advance(-(-(step + 1) // BUCKET) * BUCKET)
            if step % CHECK_EVERY == 0 and (self.response_end == OPEN).sum().item() <= STRAGGLERS * self.batch:
                break
        return self._collect(len(openings))

    def _load(self, openings: list[Opening], temperatures: list[float]) -> None:
        # A short last wave repeats its first opening; the repetitions are not collected.
        rows = openings + openings[:1] * (self.batch - len(openings))
        heat = temperatures + temperatures[:1] * (self.batch - len(openings))
        width = max(len(row.tokens) for row in rows)
        padded = torch.tensor([[*row.tokens, *[0] * (width - len(row.tokens))] for row in rows])
        lengths = torch.tensor([len(row.tokens) for row in rows])
        complete = torch.tensor([row.complete for row in rows])
        self.tokens.zero_()
        self.tokens[:, :width].copy_(padded)
        self.opening.copy_(lengths)
        self.user_end.copy_(torch.where(complete, lengths, OPEN))
        self.response_end.fill_(OPEN)
        self.temperature.copy_(torch.tensor(heat))
        self.position.zero_()

    def _advance(self, length: int) -> None:
        if self.target.device.type != "cuda":
            self._step(length)
        elif length in self.graphs:
            self.graphs[length].replay()
        else:
            self._step(length)  # in earnest, and the warm-up that a capture needs
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool):
                self._step(length)
            self.graphs[length] = graph

    @torch.no_grad()
    def _step(self, length: int) -> None:
        current = self.tokens.index_select(1, self.position)[:, 0]
        hidden = self.target.decode(current, self.position, self.cache, length)
        self.position.add_(1)
        token = self._next(self._sample(hidden))
        self.tokens.index_copy_(1, self.position, token[:, None])

    def _sample(self, hidden: Tensor) -> Tensor:
        """argmax(logits + T * Gumbel noise): a draw at temperature T, and greedy where T is 0."""
        heat = torch.where(self.user_end == OPEN, self.user_temperature, self.temperature)
        logits = self.target.logits(hidden)
        noise = torch.empty_like(logits).exponential_().clamp_(min=1e-30).log_().neg_()
        return noise.mul_(heat[:, None]).add_(logits).argmax(dim=-1)

    def _next(self, sampled: Tensor) -> Tensor:
        """The token at `position`, given the sampled ones; moves every row from opening to user turn to response."""
        place, after = self.position, self.after
        in_user = (self.user_end == OPEN) & (place >= self.opening)
        full = place - self.opening >= self.limits.user
        closes = in_user & (_any_of(sampled, self.turn_ends) | full)
        self.user_end.copy_(torch.where(closes, place, self.user_end))
        offset = place - self.user_end
        token = torch.where(offset < 0, sampled, after[offset.clamp(0, len(after) - 1)])
        token = torch.where(offset >= len(after), sampled, token)
        token = torch.where(place < self.opening, self.tokens.index_select(1, place)[:, 0], token)
        answered = offset - len(after) + 1
        ends = (answered > 0) & (_any_of(token, self.stops) | (answered >= self.limits.response))
        ends &= self.response_end == OPEN
        self.response_end.copy_(torch.where(ends, place + 1, self.response_end))
        return token

    def _collect(self, count: int) -> list[Conversation]:
        written = int(self.position.item()) + 1
        tokens = self.tokens[:count].to("cpu", torch.int32)
        ends = self.response_end[:count].clamp(max=written).tolist()
        starts = (self.user_end[:count] + len(self.after)).tolist()
        return [
            Conversation(row[:end].clone(), min(start, end))
            for row, start, end in zip(tokens, starts, ends, strict=True)
        ]


def _any_of(tokens: Tensor, wanted: Tensor) -> Tensor:
    return (tokens[:, None] == wanted).any(dim=-1)


@dataclass(frozen=True)
class Corpus:
    """Conversations for training, and greedy ones kept out of it."""

    training: list[Conversation]
    held_out: list[Conversation]

    @property
    def tokens(self) -> int:
        """Response tokens for training."""
        return sum(item.response_tokens for item in self.training)


def generate(wave: Wave, openings: Iterator[Opening], *, tokens: int, held_out: int, deadline: float) -> Corpus:
    """Waves until `tokens` response tokens are there, openings run out, or another would pass `deadline` (monotonic).

    The first `held_out` conversations are greedy and kept out, as is any training prompt that equals one of theirs.
    """
    corpus = Corpus([], [])
    while openings_left := list(islice(openings, wave.batch)):
        began = monotonic()
        reserve = held_out - len(corpus.held_out) if not corpus.training else 0
        found = wave.run(openings_left, _temperatures(len(openings_left), reserve))
        _sort_in(corpus, found[:reserve], found[reserve:])
        spent = monotonic() - began
        log.info("generated %.2f M response tokens, last wave %.1f s", corpus.tokens / 1e6, spent)
        if corpus.tokens >= tokens or monotonic() + spent > deadline:
            break
    return corpus


def _temperatures(count: int, held_out: int) -> list[float]:
    """Of a wave's responses: the held-out ones greedy, then two greedy for each one at 0.7."""
    return [0.7 if index >= held_out and index % 3 == 2 else 0.0 for index in range(count)]


def _sort_in(corpus: Corpus, held_out: list[Conversation], training: list[Conversation]) -> None:
    """Adds conversations whose response has two tokens or more: a seed and something to predict."""
    corpus.held_out.extend(item for item in held_out if item.response_tokens >= 2)
    barred = {item.prompt for item in corpus.held_out}
    corpus.training.extend(item for item in training if item.response_tokens >= 2 and item.prompt not in barred)
