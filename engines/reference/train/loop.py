"""The training loop: random anchors of every conversation, a schedule that ends on time."""

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic

import torch
from torch import Tensor

from engines.reference.train.drafter import Drafter, embed_blocks
from engines.reference.train.features import Batch, FeatureStore
from engines.reference.train.loss import Rows, block_loss, position_weights
from engines.reference.train.optimiser import Optimiser
from engines.reference.train.target import Target

log = logging.getLogger(__name__)

REPORT_SECONDS = 10.0
WARM_UP = 0.02
"""Share of the schedule in which the learning rate rises."""


class DivergedError(RuntimeError):
    """The loss is no number any more."""


@dataclass(frozen=True)
class Recipe:
    """Sizes of a step and its loss. `hard`: share of the one-hot label against the target's distribution."""

    conversations: int
    anchors: int
    gamma: float
    hard: float
    compiled: bool


@dataclass(frozen=True)
class Schedule:
    """Ends after `steps`, or at `deadline` (monotonic seconds) if that comes first; without `steps`, at `deadline`."""

    deadline: float
    steps: int | None

    def progress(self, step: int, began: float) -> float:
        """0 at the start, 1 at the end: by steps where they are given, else by time."""
        if self.steps is not None:
            return min(1.0, step / self.steps)
        return min(1.0, (monotonic() - began) / max(self.deadline - began, 1e-6))

    def over(self, step: int) -> bool:
        return monotonic() >= self.deadline or (self.steps is not None and step >= self.steps)


def rate(progress: float) -> float:
    """Factor on the learning rate: a linear rise, then a cosine to zero."""
    if progress < WARM_UP:
        return max(progress, WARM_UP / 50) / WARM_UP
    return 0.5 * (1 + math.cos(math.pi * (progress - WARM_UP) / (1 - WARM_UP)))


@dataclass(frozen=True)
class Report:
    """Where training stands; `loss` is the mean since the report before."""

    step: int
    seconds: float
    loss: float


class Trainer:
    """One drafter in training on one store of features."""

    def __init__(
        self, drafter: Drafter, target: Target, store: FeatureStore, optimiser: Optimiser, recipe: Recipe, seed: int
    ):
        self.drafter, self.target, self.store, self.optimiser, self.recipe = drafter, target, store, optimiser, recipe
        device = target.device
        self.forward = torch.compile(drafter, dynamic=False) if recipe.compiled else drafter
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self.weights = position_weights(drafter.config.block_size, recipe.gamma, device)
        self.width = store.longest
        self.batches = _shuffled(len(store), recipe.conversations, self.generator)

    def fit(self, schedule: Schedule, on_report: Callable[[Report], None]) -> int:
        """Trains until the schedule is over; returns the steps made. `on_report` is called about every 10 seconds.

        Raises DivergedError if the loss stops being a number.
        """
        step, total, since = 0, torch.zeros((), device=self.target.device), 0
        began = reported = monotonic()
        while not schedule.over(step):
            total += self.step(rate(schedule.progress(step, began)))
            step, since = step + 1, since + 1
            if step == 1:
                total.item()  # compilation ends here; the schedule by time starts after it
                began = monotonic()
            if monotonic() - reported >= REPORT_SECONDS or schedule.over(step):
                loss = total.item() / since
                if not math.isfinite(loss):
                    raise DivergedError(f"the loss is {loss} after {step} steps: lower --lr")
                speed = since / max(monotonic() - reported, 1e-6)
                log.info(
                    "step %d loss %.4f, %.1f steps/s, progress %.0f %%",
                    step,
                    loss,
                    speed,
                    100 * schedule.progress(step, began),
                )
                total.zero_()
                on_report(Report(step, round(monotonic() - began, 1), loss))
                reported, since = monotonic(), 0
        return step

    def step(self, factor: float) -> Tensor:
        """One optimiser step at `factor` of the learning rate; the loss, still on the device."""
        batch = self.store.batch(next(self.batches), self.width)
        anchors, share = draw_anchors(batch.starts, batch.ends, self.recipe.anchors, self.generator)
        seeds = batch.tokens.gather(1, anchors)
        device, mixed = self.target.device.type, self.target.dtype == torch.bfloat16
        with torch.autocast(device, dtype=torch.bfloat16, enabled=mixed):
            blocks = embed_blocks(self.target.embedding, seeds, self.drafter.config)
            states = self.forward(blocks, batch.features, anchors)
        rows = label_rows(
            states[:, :, 1:].flatten(0, 2), batch, anchors, share, self.weights, soft=self.recipe.hard < 1
        )
        loss = block_loss(rows, self.target.head, self.recipe.hard, compiled=self.recipe.compiled)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step(factor)
        return loss.detach()


def draw_anchors(starts: Tensor, ends: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """`count` seed positions [B, count] per response, one in each of `count` equal stretches; and a weight [B] below 1
    where the response has fewer tokens than that, so that every token of the corpus counts alike.
    """
    usable = ends - starts - 1  # the last token has nothing after it
    slots = torch.arange(count, device=starts.device)
    offsets = (slots + torch.rand(len(starts), count, generator=generator, device=starts.device)) / count
    anchors = starts[:, None] + torch.minimum((offsets * usable[:, None]).long(), usable[:, None] - 1)
    return anchors, (usable / count).clamp(max=1.0)


def label_rows(states: Tensor, batch: Batch, anchors: Tensor, share: Tensor, weights: Tensor, *, soft: bool) -> Rows:
    """Labels, weights (zero past the response's end) and teacher states of every predicted position, flattened."""
    places = anchors[..., None] + torch.arange(1, len(weights) + 1, device=anchors.device)
    known = places < batch.ends[:, None, None]
    inside = places.clamp(max=batch.tokens.shape[1] - 1).flatten(1)
    teacher = None
    if soft and batch.final is not None:
        before = (inside - 1)[..., None].expand(-1, -1, batch.final.shape[-1])
        teacher = batch.final.gather(1, before).flatten(0, 1)
    return Rows(
        states=states,
        labels=batch.tokens.gather(1, inside).flatten(),
        weights=(weights * known * share[:, None, None]).flatten(),
        teacher=teacher,
    )


def _shuffled(count: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Batches of `size` indices below `count` from one random permutation after the other."""
    left = torch.empty(0, dtype=torch.long, device=generator.device)
    while True:
        while len(left) < size:
            left = torch.cat((left, torch.randperm(count, generator=generator, device=generator.device)))
        yield left[:size]
        left = left[size:]
