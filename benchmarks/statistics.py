"""Does the decision hold what it promises? Synthetic sweeps whose truth is known, judged by the product's own code.

    python -m benchmarks.statistics [--sweeps 2000] [--only NAME] [--output benchmarks/results/statistics.json]

A sweep is drawn as log times: a prompt's length of answer, its content (how much better than on average an arm does
on it), noise of a single request, noise that one trial's requests share, and the luck that all trials of one engine
start share. Every case says how much of each.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from engines.base import Arm, Method
from orchestrator.judgement import Point
from orchestrator.records import PointDecision, Verdict
from orchestrator.selection import Measurements
from orchestrator.spec import BlockSpec, SelectionSpec
from orchestrator.stopping import DROP_ERROR, look

RESAMPLES = 1000
COMMAND = "python -m benchmarks.statistics"


PROMPTS = 12
"""Prompts a block in the sweeps that add blocks."""


@dataclass(frozen=True)
class Case:
    """`gains` are the true speed-ups of the arms beside the baseline. Noises are standard deviations of log time.

    `start`: the luck of an engine start; an arm has one for all blocks or, `restart`, one for each.
    An `adaptive` case adds blocks of 12 prompts and drops arms by the product's default rules; `blocks` and `prompts`
    are then what it has at most.
    """

    name: str
    gains: tuple[float, ...]
    blocks: int = 4
    prompts: int = 48
    adaptive: bool = False
    request: float = 0.03
    trial: float = 0.0
    content: float = 0.0
    skewed: bool = False
    margin: float = 0.0
    start: float = 0.0
    restart: bool = False

    def sweep(self, draw: np.random.Generator) -> Measurements:
        shape = (self.prompts, 1 + len(self.gains))
        blocks = np.arange(self.prompts) % self.blocks
        step = draw.normal(0, self.request, shape) + draw.normal(0, self.trial, (self.blocks, shape[1]))[blocks]
        if self.start:
            starts = draw.normal(0, self.start, (self.blocks if self.restart else 1, shape[1]))
            step += starts[blocks] if self.restart else starts
        content = draw.exponential(1, shape) - 1 if self.skewed else draw.normal(0, 1, shape)
        content[:, 0] = 0.0
        token = np.exp(step - self.content * content) / np.array([1.0, *self.gains])
        tokens = np.repeat(draw.integers(30, 200, (self.prompts, 1)), shape[1], axis=1).astype(float)
        tasks = np.array(["a", "b", "c", "d"])[np.arange(self.prompts) // self.blocks % 4]
        return Measurements(_arms(shape[1]), blocks, tasks, token * tokens, tokens, np.exp(step))


@dataclass(frozen=True)
class Judged:
    """A synthetic sweep's decision, the blocks it took and the arms it gave up on the way."""

    point: PointDecision
    blocks: int
    dropped: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """`winners`: share of sweeps with one. `coverage`: of the held-out intervals of all arms. `gain`: mean error of the
    gain reported for the arm put forward, in %; `winner_gain`: for those that won. `width`: of an interval, in %.
    `blocks`: mean number measured. `dropped`: mean share of the arms given up on the way; `lost`: of those
    within the margin of the fastest.
    """

    winners: float
    coverage: float
    gain: float
    winner_gain: float | None
    width: float
    blocks: float
    dropped: float
    lost: float


def adaptive(name: str, gains: tuple[float, ...], trial: float = 0.01, margin: float = 0.02, **noise: Any) -> Case:
    """A sweep of the product's default size."""
    most = BlockSpec().max
    return Case(name, gains, most, most * PROMPTS, adaptive=True, trial=trial, margin=margin, **noise)


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
    *(adaptive(f"A/A adaptive, {n} arms", (1.0,) * (n - 1), margin=0.0) for n in (2, 4, 8, 12)),
    adaptive("A/A adaptive, 12 arms, default margin", (1.0,) * 11),
    adaptive("A/A adaptive, 6 arms, 3 % a trial", (1.0,) * 5, trial=0.03, margin=0.0),
    adaptive("A/A adaptive, 6 arms, quiet machine", (1.0,) * 5, trial=0.0, margin=0.0),
    adaptive("A/A adaptive, 4 arms, skewed content", (1.0,) * 3, margin=0.0, content=0.2, skewed=True),
    adaptive("coverage adaptive, 6 arms", (1.01, 1.02, 1.03, 1.05, 1.06)),
    adaptive("coverage adaptive, clear and hopeless arms", (0.8, 0.9, 1.1, 1.2, 1.4)),
    adaptive("coverage adaptive, content 20 %", (1.1, 1.2, 1.3), content=0.2),
    adaptive("coverage adaptive, skewed content 20 %", (1.1, 1.2, 1.3), content=0.2, skewed=True),
    adaptive("coverage adaptive, 2 arms", (1.03,), content=0.05),
    adaptive("coverage adaptive, nothing is faster", (0.97, 0.95, 0.9)),
    adaptive("power adaptive, 3 %, 2 arms", (1.03,), margin=0.0),
    adaptive("power adaptive, 3 %, 2 arms, 0.5 % a trial", (1.03,), trial=0.005, margin=0.0),
    adaptive("power adaptive, 3 %, 6 arms", (1.03, 1.0, 0.99, 0.98, 0.9), margin=0.0),
    adaptive("power adaptive, 5 %, default margin", (1.05,), trial=0.005),
    adaptive("gain adaptive, 12 equal arms", (1.2,) * 11),
    adaptive("gain adaptive, 3 % and near-equals", (1.0, 1.01, 1.02, 1.03, 1.03), margin=0.0),
    adaptive("gain adaptive, content 10 %", (1.28, 1.29, 1.30, 1.30, 1.31), content=0.1),
    adaptive("drop adaptive, 12 arms", (1.03, 1.03, 1.02, 1.0, 1.0, 0.98, 0.95, 0.92, 0.9, 0.85, 0.8)),
    Case("gain, 12 equal arms", (1.2,) * 11, trial=0.01),
    Case("gain, 6 near-equal arms, content 10 %", (1.28, 1.29, 1.30, 1.30, 1.31), trial=0.01, content=0.1),
    Case("luck, 6 arms, 3 % a start, kept up", (1.0,) * 5, trial=0.01, start=0.03),
    Case("A/A, 6 arms, 3 % a start, restart", (1.0,) * 5, trial=0.01, start=0.03, restart=True),
    Case("coverage, 6 arms, 3 % a start, restart", (1.1, 1.2, 1.2, 1.3, 1.4), trial=0.01, start=0.03, restart=True),
    adaptive("luck adaptive, 6 arms, 3 % a start, kept up", (1.0,) * 5, margin=0.0, start=0.03),
    adaptive("luck adaptive, 3 % a start, default margin", (1.0,) * 5, start=0.03),
    adaptive("A/A adaptive, 6 arms, 3 % a start, restart", (1.0,) * 5, margin=0.0, start=0.03, restart=True),
    adaptive("coverage adaptive, 3 % a start, restart", (1.01, 1.02, 1.03, 1.05, 1.06), start=0.03, restart=True),
)


def judge(case: Case, found: Measurements, rule: SelectionSpec) -> Judged:
    """The decision on all blocks, or in an adaptive case on those after which it stops."""
    rounds, dropped = BlockSpec(), dict[str, str]()
    count = rounds.count if case.adaptive else case.blocks
    while count < case.blocks:
        view = look(_without(found.take(found.blocks < count), dropped), 0, rule, rounds)
        dropped |= view.dropped
        if view.stop:
            break
        count += rounds.step
    count = min(count, case.blocks)
    point = Point(1, rule, dropped).judge(_without(found.take(found.blocks < count), dropped))
    return Judged(point, count, tuple(dropped))


def _without(found: Measurements, dropped: Collection[str]) -> Measurements:
    kept = [index for index, arm in enumerate(found.arms) if arm.name not in dropped]
    arms = tuple(found.arms[index] for index in kept)
    times = (found.decode[:, kept], found.tokens[:, kept], found.step[:, kept])
    return Measurements(arms, found.blocks, found.tasks, *times)


def run(case: Case, sweeps: int, seed: int) -> Outcome:
    """Judge `sweeps` draws of the case."""
    judged = []
    for index in range(sweeps):
        rule = SelectionSpec(baseline="arm-0", margin=case.margin, resamples=RESAMPLES, seed=index)
        judged.append(judge(case, case.sweep(np.random.default_rng([seed, index])), rule))
    decided = [sweep.point for sweep in judged]
    truth = {arm.name: gain for arm, gain in zip(_arms(1 + len(case.gains))[1:], case.gains, strict=True)}
    intervals = [(c.speedup, truth[c.arm]) for point in decided for c in point.comparisons]
    won = [point for point in decided if point.verdict is Verdict.WINNER]
    return Outcome(
        winners=len(won) / sweeps,
        coverage=float(np.mean([interval.low <= gain <= interval.high for interval, gain in intervals])),
        gain=_gain_error(decided, truth),
        winner_gain=_gain_error(won, truth) if won else None,
        width=100 * float(np.mean([np.log(interval.high / interval.low) for interval, _ in intervals])),
        blocks=float(np.mean([sweep.blocks for sweep in judged])),
        dropped=float(np.mean([len(sweep.dropped) for sweep in judged])) / len(case.gains),
        lost=float(np.mean([_lost(case, truth, sweep) for sweep in judged])),
    )


def _lost(case: Case, truth: dict[str, float], sweep: Judged) -> float:
    """Share of the arms within the margin of the fastest that were given up."""
    fast = [arm for arm, gain in truth.items() if gain * (1 + case.margin) >= max(1.0, *truth.values())]
    return sum(arm in sweep.dropped for arm in fast) / max(1, len(fast))


def failures(case: Case, outcome: Outcome) -> list[str]:
    """Which promise the case breaks. `sight` promises nothing: it shows what a sweep of the default size can see.

    `wide` need only not be narrow: with 3 degrees of freedom, no noise of trials cannot be told from a little. `luck`
    promises nothing either: it shows what an engine's luck does where the engine is kept up over all blocks.
    """
    kind = case.name.split(",")[0].split(" ")[0]
    if kind == "luck":
        return []
    promises = {
        "A/A": (outcome.winners <= 0.05, "false winners above 5 %"),
        "coverage": (0.93 <= outcome.coverage <= 0.97, "coverage outside 93 to 97 %"),
        "wide": (outcome.coverage >= 0.93, "coverage below 93 %"),
        "sight": (True, ""),
        "drop": (outcome.dropped > 0.3, "hopeless arms are kept"),
        "power": (outcome.winners >= 0.9, "power below 90 %"),
        "gain": (abs(outcome.gain) <= 0.3 and abs(outcome.winner_gain or 0.0) <= 0.3, "gain off by more than 0.3 %"),
    }
    kept, reason = promises[kind]
    broken = [] if kept else [reason]
    return broken + ["a fast arm lost in more than 5 %"] * (outcome.lost > DROP_ERROR)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog=COMMAND)
    parser.add_argument("--sweeps", type=int, default=2000)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--only", default="", help="cases with this in their name")
    options = parser.parse_args(arguments)
    settings = _settings(options.sweeps)
    earlier = _earlier(options.output, settings) if options.only else {}
    print(f"{options.sweeps} sweeps a case, {RESAMPLES} resamples, 95 % intervals\n")
    print(
        f"{'case':<46}{'winners %':>10}{'coverage %':>11}{'gain error %':>13}{'of winners':>11}{'width %':>9}"
        f"{'blocks':>8}{'dropped %':>10}{'lost %':>8}"
    )
    began = time.perf_counter()
    rows: list[dict[str, Any]] = []
    for number, case in enumerate(CASES):
        if options.only not in case.name:
            continue
        outcome = run(case, options.sweeps, number)
        broken = failures(case, outcome)
        rows.append({"case": asdict(case), "outcome": asdict(outcome), "broken": broken})
        print(_line(case, outcome, broken), flush=True)
    if options.output:
        seconds = round(earlier.get("seconds", 0.0) + time.perf_counter() - began, 1)
        cases = _in_order([*earlier.get("cases", []), *rows])
        document = {"command": COMMAND} | settings | {"seconds": seconds, "cases": cases}
        options.output.write_text(json.dumps(document, indent=1))
    return int(any(row["broken"] for row in rows))


def _line(case: Case, outcome: Outcome, broken: Sequence[str]) -> str:
    winner_gain = "-" if outcome.winner_gain is None else f"{outcome.winner_gain:.2f}"
    numbers = f"{100 * outcome.winners:>10.1f}{100 * outcome.coverage:>11.1f}{outcome.gain:>13.2f}"
    effort = f"{outcome.blocks:>8.1f}{100 * outcome.dropped:>10.0f}{100 * outcome.lost:>8.1f}"
    return f"{case.name:<46}{numbers}{winner_gain:>11}{outcome.width:>9.1f}{effort}  {'; '.join(broken)}"


def _settings(sweeps: int) -> dict[str, Any]:
    """What all cases of a file must share."""
    versions = {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__}
    return {"versions": versions, "sweeps": sweeps, "resamples": RESAMPLES}


def _earlier(output: Path | None, settings: dict[str, Any]) -> dict[str, Any]:
    """What `output` holds, where it was run in the same way; some cases alone then take their place in it."""
    if output is None or not output.exists():
        return {}
    found: dict[str, Any] = json.loads(output.read_text())
    if {name: found[name] for name in settings} != settings:
        raise SystemExit(f"{output}: its cases were run in another way than these would be; run all of them")
    return found


def _in_order(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last row of each case there is, in the order of the cases."""
    last = {row["case"]["name"]: row for row in rows}
    return [last[case.name] for case in CASES if case.name in last]


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
