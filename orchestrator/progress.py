"""What a sweep shows while it runs: on a terminal a live table of the slots, elsewhere plain lines."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestrator.measure import Measurement
from orchestrator.metrics import tokens_within
from orchestrator.plan import Trial
from orchestrator.records import TrialState
from orchestrator.times import clock


@dataclass
class _Row:
    """A slot's line in the table."""

    trial: str = ""
    what: str = "waiting for its resources"
    since: float = field(default_factory=time.time)


class Progress:
    """Counts trials and estimates the time left from the durations measured so far."""

    def __init__(self, console: Console, total: int, done: int) -> None:
        self._console = console
        self._total = total
        self._done = done
        self._skipped = done
        self._began = time.time()
        self._spent = 0.0
        self._rows: dict[str, _Row] = {}
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=2, transient=True)

    @property
    def total(self) -> int:
        return self._total

    def grow(self, trials: int) -> None:
        """So many more trials are to be run."""
        self._total += trials

    @property
    def live(self) -> bool:
        """Whether anybody watches what the slots do between two trials."""
        return self._console.is_terminal

    def __enter__(self) -> Progress:
        if self._skipped:
            self.say(f"{self._skipped} of {self._total} trials are stored; going on with the rest")
        if self.live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """One line that stays."""
        self._console.print(Text(text), soft_wrap=True)

    def slot(self, name: str, trial: Trial | None, what: str, since: float) -> None:
        """What a slot is doing now."""
        self._rows[name] = _Row(label(trial) if trial else "", what, since)

    def again(self, measurement: Measurement) -> None:
        """A trial that did not count and is run once more."""
        record = measurement.record
        self.say(f"{'':9} block {record.block}  {record.arm}  {record.state.value}: {record.reason}; once more")

    def finished(self, measurement: Measurement, seconds: float) -> None:
        """A trial is stored: one line, and its time goes into the estimate."""
        self._done += 1
        self._spent += seconds
        width = len(str(self._total))
        self.say(f"[{self._done:{width}}/{self._total}] {summary(measurement)}{self._left_text()}")

    def seconds_left(self) -> float | None:
        """Estimate from this session's trials; None before the first."""
        measured = self._done - self._skipped
        if not measured:
            return None
        return self._spent / measured * (self._total - self._done) / max(1, len(self._rows))

    def _left_text(self) -> str:
        left = self.seconds_left()
        return f"  {clock(left)} left" if left else ""

    def _render(self) -> RenderableType:
        table = Table("slot", "trial", "doing", "for", box=None, pad_edge=False)
        now = time.time()
        for name, row in sorted(self._rows.items()):
            table.add_row(name, row.trial, row.what, clock(now - row.since))
        head = f"{self._done} of {self._total} trials, {clock(now - self._began)} elapsed{self._left_text()}"
        return Group(Text(head, style="bold"), table)


def label(trial: Trial) -> str:
    """A trial in words."""
    return f"{trial.arm.name}, block {trial.block}, {trial.concurrency} at once"


def summary(measurement: Measurement) -> str:
    """Arm, block, output tok/s in the steady window, acceptance length; the reason of a trial that does not count."""
    record, counters = measurement.record, measurement.counters
    head = f"block {record.block}  at {record.concurrency}  {record.arm:<24}"
    if record.state is not TrialState.VALID:
        return f"{head} {record.state.value}: {record.reason}"
    rate = tokens_within(measurement.requests, record.window) / (record.window[1] - record.window[0])
    return f"{head} {rate:7.1f} tok/s  acceptance length {counters.acceptance_length:.2f}"
