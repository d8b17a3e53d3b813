"""Two runs of the same question, before and after a change: paired by prompt, arm by arm.

An arm is compared in two ways. `speed` is the ratio of its times per token. `relative` is the ratio of its speed-ups
over the baseline of its own run: what the machine did differently on the second day slows both and cancels. An arm is
judged by `relative` where both runs have the baseline; the baseline, which stands for machine and engine, by `speed`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.errors import InputError
from orchestrator.identity import Difference, differences
from orchestrator.metrics import measure
from orchestrator.records import Interval, Record, TrialState
from orchestrator.spec import SweepSpec
from orchestrator.statistics import Bootstrap, Estimate, Floats, Ints, TrialNoise, holm, paired_estimate, trial_noise
from orchestrator.store import RunStore

MIN_PROMPTS = 8
"""Fewest prompts of an arm in both runs from which anything is said."""


class Change(StrEnum):
    REGRESSED = "regressed"
    IMPROVED = "improved"
    SAME = "no regression"
    UNCLEAR = "cannot be told"


class Delta(Record):
    """One arm at one concurrency. Ratios are after / before, above 1 where the arm got faster."""

    arm: str
    concurrency: int
    prompts: int
    speed: Interval
    relative: Interval | None
    p_adjusted: float
    acceptance_before: float
    acceptance_after: float
    change: Change


class RunComparison(Record):
    """What changed from one run to another. `unmatched`: arms that only one of them has."""

    before: str
    after: str
    sentence: str
    change: Change
    differences: list[Difference]
    deltas: list[Delta]
    unmatched: list[str]
    margin: float
    confidence: float


@dataclass(frozen=True)
class _Common:
    """The prompts that one arm, and the baseline if it is another one and both runs have it, answered in both runs.

    `gains` are logs of time before / time after, prompts x 1 or 2 (arm, baseline). `blocks` are pairs of trials.
    """

    gains: Floats
    blocks: Ints
    noise: TrialNoise


def compare_runs(before: RunStore, after: RunStore, margin: float) -> RunComparison:
    """InputError, naming what differs, where the two runs did not measure the same thing."""
    found = differences(_described(before), _described(after))
    refused = [item for item in found if item.refused]
    if refused:
        listed = "; ".join(f"{item.what}: {item.before} and {item.after}" for item in refused)
        raise InputError(f"{before.folder.name} and {after.folder.name} cannot be compared: {listed}")
    old, new = measure(_requests(before)), measure(_requests(after))
    _check_prompts(old, new)
    rule = before.sweep(SweepSpec).selection
    bootstrap = Bootstrap(rule.confidence, rule.resamples, rule.seed)
    deltas = _deltas(old, new, rule.baseline, bootstrap, margin)
    if not deltas:
        raise InputError(
            f"{before.folder.name} and {after.folder.name} have no arm with {MIN_PROMPTS} prompts in common"
        )
    change = _overall(deltas)
    return RunComparison(
        before=before.folder.name,
        after=after.folder.name,
        sentence=_sentence(deltas, change, margin),
        change=change,
        differences=found,
        deltas=deltas,
        unmatched=sorted(set(old["arm"]) ^ set(new["arm"])),
        margin=margin,
        confidence=rule.confidence,
    )


def _described(store: RunStore) -> dict[str, Any]:
    """The run's environment, with the slots' own word for the hardware, and what the servers said they were."""
    trials = [trial for trial in store.trials.records() if trial.state is TrialState.VALID]
    slot = dict(trials[0].hardware) if trials else {}
    return store.environment() | slot | {"served": {trial.arm: trial.identity for trial in trials}}


def _requests(store: RunStore) -> pd.DataFrame:
    requests = store.trials.requests()
    if requests.empty:
        raise InputError(f"{store.folder}: no valid trial to compare")
    return requests


def _check_prompts(old: pd.DataFrame, new: pd.DataFrame) -> None:
    """The tokens that reached the target: another template or another text under the same name changes them."""
    before, after = _reached(old), _reached(new)
    parted = sorted({name for arm, name in before.keys() & after.keys() if before[arm, name] != after[arm, name]})
    if parted:
        raise InputError(f"the prompt {parted[0]} is not the same text in both runs ({len(parted)} differ)")


def _reached(requests: pd.DataFrame) -> dict[tuple[str, str], set[tuple[int, ...]]]:
    """Of each arm and prompt the token ids that the target was given, of all its trials; a failed request has none."""
    reached: dict[tuple[str, str], set[tuple[int, ...]]] = {}
    for arm, name, tokens in requests[["arm", "prompt_id", "prompt_token_ids"]].itertuples(index=False):
        if len(tokens):
            reached.setdefault((arm, name), set()).add(tuple(map(int, tokens)))
    return reached


def _deltas(old: pd.DataFrame, new: pd.DataFrame, baseline: str, bootstrap: Bootstrap, margin: float) -> list[Delta]:
    found = []
    for at in sorted(set(old["concurrency"]) & set(new["concurrency"])):
        a, b = (frame[frame["concurrency"] == at] for frame in (old, new))
        arms = [arm for arm in dict.fromkeys(a["arm"]) if (b["arm"] == arm).any()]
        for arm in sorted(arms, key=lambda name: (name != baseline, name)):
            common = _common(a, b, [arm] if arm == baseline or baseline not in arms else [arm, baseline])
            if common is not None:
                found.append((a, b, arm, int(at), common))
    estimates = [_estimates(common, bootstrap, bootstrap.stream(arm, str(at))) for _, _, arm, at, common in found]
    adjusted = holm([(relative or speed).p_value for speed, relative in estimates])
    return [
        Delta(
            arm=arm,
            concurrency=at,
            prompts=len(common.gains),
            speed=speed.ratio(),
            relative=relative.ratio() if relative else None,
            p_adjusted=p_value,
            acceptance_before=_acceptance(a, arm),
            acceptance_after=_acceptance(b, arm),
            change=_change(relative or speed, p_value, bootstrap.confidence, margin),
        )
        for (a, b, arm, at, common), (speed, relative), p_value in zip(found, estimates, adjusted, strict=True)
    ]


def _common(old: pd.DataFrame, new: pd.DataFrame, names: list[str]) -> _Common | None:
    """None for fewer than MIN_PROMPTS prompts, or one pair of blocks."""
    columns = [frame[frame["arm"] == name].set_index("prompt_id") for name in names for frame in (old, new)]
    tables = {
        key: pd.concat([column[key] for column in columns], axis=1, keys=range(len(columns)), join="inner")
        for key in ("decode", "decode_tokens", "step", "block")
    }
    whole = (tables["decode"] > 0).all(axis=1)
    decode, tokens, step, block = (table[whole].to_numpy(dtype=float) for table in tables.values())
    _, labels = np.unique(block[:, :2], axis=0, return_inverse=True)
    if len(decode) < MIN_PROMPTS or len(set(labels)) < 2:
        return None
    times = np.log(decode / tokens)
    return _Common(times[:, ::2] - times[:, 1::2], labels, trial_noise(np.log(step), labels))


def _estimates(common: _Common, bootstrap: Bootstrap, stream: np.random.Generator) -> tuple[Estimate, Estimate | None]:
    """Speed, and relative speed where there is a baseline to hold it against."""
    speed = paired_estimate(common.gains[:, 0], common.blocks, common.noise, bootstrap, stream)
    if common.gains.shape[1] == 1:
        return speed, None
    noise = TrialNoise(2 * common.noise.variance, common.noise.degrees)  # of four trials instead of two
    return speed, paired_estimate(common.gains[:, 0] - common.gains[:, 1], common.blocks, noise, bootstrap, stream)


def _acceptance(measured: pd.DataFrame, arm: str) -> float:
    own = measured[(measured["arm"] == arm) & measured["ok"]]
    steps = int(own["verify_steps"].sum())
    return 1 + float(own["accepted"].sum()) / steps if steps else 1.0


def _change(found: Estimate, p_value: float, confidence: float, margin: float) -> Change:
    """Regressed or improved where all of the interval lies beyond the margin."""
    line = math.log1p(margin)
    if p_value <= 1 - confidence and found.high < -line:
        return Change.REGRESSED
    if p_value <= 1 - confidence and found.low > line:
        return Change.IMPROVED
    return Change.SAME if found.low > -line else Change.UNCLEAR


def _overall(deltas: Sequence[Delta]) -> Change:
    changes = {delta.change for delta in deltas}
    worst = next((item for item in (Change.REGRESSED, Change.UNCLEAR) if item in changes), None)
    return worst or (Change.IMPROVED if Change.IMPROVED in changes else Change.SAME)


def _sentence(deltas: Sequence[Delta], change: Change, margin: float) -> str:
    own = [delta for delta in deltas if delta.change is change]
    rows = ", ".join(f"{delta.arm} at {delta.concurrency} ({_ratio(delta)})" for delta in own)
    if change is Change.SAME:
        return f"no regression: none of {len(deltas)} arms is more than {100 * margin:g} % slower ({rows})"
    return f"{change.value}: {rows}"


def _ratio(delta: Delta) -> str:
    found = delta.relative or delta.speed
    against = " against the baseline" if delta.relative else ""
    return f"{found.estimate:.3f}x{against}, {found.low:.3f} to {found.high:.3f}"
