"""Does the decision hold what it promises? Synthetic sweeps whose truth is known, judged by the product's own code.

    python -m benchmarks.statistics [--sweeps 2000] [--output benchmarks/results/statistics.json]

A sweep is drawn as log times: a prompt's length of answer, its content (how much better than on average an arm does
on it), noise of a single request, and noise that one trial's requests share. Every case says how much of each.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import scipy

from engines.base import Arm, Method
from orchestrator.judgement import Point
from orchestrator.records import PointDecision, Verdict
from orchestrator.selection import Measurements
from orchestrator.spec import SelectionSpec

RESAMPLES = 1000
COMMAND = "python -m benchmarks.statistics"


@dataclass(frozen=True)
class Case:
    """`gains` are the true speed-ups of the arms beside the baseline. Noises are standard deviations of log time."""

    name: str
    gains: tuple[float, ...]
    blocks: int = 4
    prompts: int = 48
    request: float = 0.03
    trial: float = 0.0
    content: float = 0.0
    skewed: bool = False
    margin: float = 0.0

    def sweep(self, draw: np.random.Generator) -> Measurements:
        shape = (self.prompts, 1 + len(self.gains))
        blocks = np.arange(self.prompts) % self.blocks
        step = draw.normal(0, self.request, shape) + draw.normal(0, self.trial, (self.blocks, shape[1]))[blocks]
        content = draw.exponential(1, shape) - 1 if self.skewed else draw.normal(0, 1, shape)
        content[:, 0] = 0.0
        token = np.exp(step - self.content * content) / np.array([1.0, *self.gains])
        tokens = np.repeat(draw.integers(30, 200, (self.prompts, 1)), shape[1], axis=1).astype(float)
        tasks = np.array(["a", "b", "c", "d"])[np.arange(self.prompts) // self.blocks % 4]
        return Measurements(_arms(shape[1]), blocks, tasks, token * tokens, tokens, np.exp(step))


@dataclass(frozen=True)
class Outcome:
    """`winners`: share of sweeps with one. `coverage`: of the held-out intervals of all arms. `gain`: mean error of the
    gain reported for the arm put forward, in %; `winner_gain`: for those that won. `width`: of an interval, in %.
    """

    winners: float
    coverage: float
    gain: float
    winner_gain: float | None
    width: float


CASES = (
    *(Case(f"A/A, {n} arms", (1.0,) * (n - 1), trial=0.01) for n in (2, 4, 8, 12)),
    Case("A/A, 12 arms, default margin", (1.0,) * 11, trial=0.01, margin=0.02),
    Case("A/A, 6 arms, 3 % a trial", (1.0,) * 5, trial=0.03),
    Case("A/A, 6 arms, quiet machine", (1.0,) * 5),
    Case("coverage, 6 arms", (1.1, 1.2, 1.2, 1.3, 1.4), trial=0.01),
    Case("coverage, content 20 %", (1.1, 1.2, 1.3), trial=0.01, content=0.2),
    Case("coverage, skewed content 20 %", (1.1, 1.2, 1.3), trial=0.03, content=0.2, skewed=True),
    Case("coverage, 16 prompts in 2 blocks", (1.1, 1.2, 1.3), blocks=2, prompts=16, trial=0.01, content=0.1),
    Case("coverage, 2 arms in 8 blocks", (1.3,), blocks=8, prompts=96, trial=0.02, content=0.1),
    Case("wide, 2 arms in 4 blocks, quiet machine", (1.3,)),
    Case("power, 3 % in 8 blocks of 12, 0.5 % a trial", (1.03,), blocks=8, prompts=96, trial=0.005),
    Case("power, 3 % in 15 blocks of 12, 1 % a trial", (1.03,), blocks=15, prompts=180, trial=0.01),
    Case("power, 5 % in 8 of 12, default margin", (1.05,), blocks=8, prompts=96, trial=0.005, margin=0.02),
    Case("sight, 3 % in 4 blocks of 12, quiet machine", (1.03,)),
    Case("sight, 3 % in 4 blocks of 12, 1 % a trial", (1.03,), trial=0.01),
    Case("sight, 5 % in 4 of 12, default margin", (1.05,), trial=0.005, margin=0.02),
    Case("gain, 12 equal arms", (1.2,) * 11, trial=0.01),
    Case("gain, 6 near-equal arms, content 10 %", (1.28, 1.29, 1.30, 1.30, 1.31), trial=0.01, content=0.1),
)


def run(case: Case, sweeps: int, seed: int) -> Outcome:
    """Judge `sweeps` draws of the case."""
    decided = []
    for index in range(sweeps):
        rule = SelectionSpec(baseline="arm-0", margin=case.margin, resamples=RESAMPLES, seed=index)
        decided.append(Point(1, rule, {}).judge(case.sweep(np.random.default_rng([seed, index]))))
    truth = {arm.name: gain for arm, gain in zip(_arms(1 + len(case.gains))[1:], case.gains, strict=True)}
    intervals = [(c.speedup, truth[c.arm]) for point in decided for c in point.comparisons]
    won = [point for point in decided if point.verdict is Verdict.WINNER]
    return Outcome(
        winners=len(won) / sweeps,
        coverage=float(np.mean([interval.low <= gain <= interval.high for interval, gain in intervals])),
        gain=_gain_error(decided, truth),
        winner_gain=_gain_error(won, truth) if won else None,
        width=100 * float(np.mean([np.log(interval.high / interval.low) for interval, _ in intervals])),
    )


def failures(case: Case, outcome: Outcome) -> list[str]:
    """Which promise the case breaks. `sight` promises nothing: it shows what a sweep of the default size can see.

    `wide` need only not be narrow: with 3 degrees of freedom, no noise of trials cannot be told from a little.
    """
    promises = {
        "A/A": (outcome.winners <= 0.05, "false winners above 5 %"),
        "coverage": (0.93 <= outcome.coverage <= 0.97, "coverage outside 93 to 97 %"),
        "wide": (outcome.coverage >= 0.93, "coverage below 93 %"),
        "sight": (True, ""),
        "power": (outcome.winners >= 0.9, "power below 90 %"),
        "gain": (abs(outcome.gain) <= 0.3 and abs(outcome.winner_gain or 0.0) <= 0.3, "gain off by more than 0.3 %"),
    }
    kept, reason = promises[case.name.split(",")[0]]
    return [] if kept else [reason]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog=COMMAND)
    parser.add_argument("--sweeps", type=int, default=2000)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    print(f"{options.sweeps} sweeps a case, {RESAMPLES} resamples, 95 % intervals\n")
    print(f"{'case':<46}{'winners %':>10}{'coverage %':>11}{'gain error %':>13}{'of winners':>11}{'width %':>9}")
    began = time.perf_counter()
    rows = []
    for number, case in enumerate(CASES):
        outcome = run(case, options.sweeps, number)
        broken = failures(case, outcome)
        rows.append({"case": asdict(case), "outcome": asdict(outcome), "broken": broken})
        print(_line(case, outcome, broken), flush=True)
    if options.output:
        options.output.write_text(json.dumps(_document(options.sweeps, time.perf_counter() - began, rows), indent=1))
    return int(any(row["broken"] for row in rows))


def _line(case: Case, outcome: Outcome, broken: Sequence[str]) -> str:
    winner_gain = "-" if outcome.winner_gain is None else f"{outcome.winner_gain:.2f}"
    numbers = f"{100 * outcome.winners:>10.1f}{100 * outcome.coverage:>11.1f}{outcome.gain:>13.2f}"
    return f"{case.name:<46}{numbers}{winner_gain:>11}{outcome.width:>9.1f}  {'; '.join(broken)}"


def _document(sweeps: int, seconds: float, rows: Sequence[object]) -> dict[str, object]:
    versions = {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__}
    settings = {"sweeps": sweeps, "resamples": RESAMPLES, "seconds": round(seconds, 1)}
    return {"command": COMMAND, "versions": versions, **settings, "cases": rows}


def _gain_error(points: Sequence[PointDecision], truth: dict[str, float]) -> float:
    """Mean over sweeps of reported over true speed-up of the arm put forward, less 1, in %."""
    errors = []
    for point in points:
        found = next(c for c in point.comparisons if c.arm == point.candidate)
        errors.append(np.log(found.speedup.estimate / truth[found.arm]))
    return 100 * float(np.expm1(np.mean(errors)))


def _arms(count: int) -> tuple[Arm, ...]:
    return tuple(Arm(f"arm-{i}", "synthetic", Method.AUTOREGRESSIVE) for i in range(count))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
