"""The equivalence gate's part that acts: rankings from a running engine, and the trial that calibrates near-ties."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import pandas as pd
from rich.console import Console
from rich.text import Text

from engines.base import Arm, EngineError, Ranking
from orchestrator.cluster import Choice
from orchestrator.deployments import CALIBRATION_CONCURRENCY
from orchestrator.equivalence import (
    Agreement,
    Candidate,
    compare_texts,
    judge,
    logit_gap,
    near_tie_gap,
    own_regret,
    self_divergences,
    unjudged,
)
from orchestrator.plan import Plan, Trial
from orchestrator.pool import SlotHandle, open_slots
from orchestrator.records import Divergence, GateResult, TrialState
from orchestrator.store import RunStore
from orchestrator.validity import Limits

_ANY_LOAD = Limits(*[float("inf")] * len(fields(Limits)))
"""Texts do not depend on how fast they come."""


def run_gate(
    plan: Plan, store: RunStore, choice: Choice, console: Console
) -> tuple[list[GateResult], list[Divergence]]:
    """Judge every speculative arm by the greedy texts in the store and write equivalence.parquet. Inside `connect`.

    Nothing to judge when the gate is off or the workload samples. An engine is started only where texts differ.
    Where it cannot be asked, the arms whose texts differ fail with the reason. InputError for a damaged run folder.
    """
    if not plan.spec.equivalence.enabled or plan.spec.workload.temperature > 0:
        return [], []
    requests = store.trials.requests()
    agreements = compare_texts(requests, plan.arms, plan.spec.selection.baseline)
    evidence = _Evidence({}, {}, {})
    if any(agreement.candidates for agreement in agreements):
        evidence = asyncio.run(_Gate(plan, requests, agreements, console).evidence(choice))
    results: list[GateResult] = []
    divergences: list[Divergence] = []
    for agreement in agreements:
        reason = evidence.unasked.get(agreement.reference or "")
        if reason and agreement.candidates:
            results.append(unjudged(agreement, reason))
            continue
        epsilon = near_tie_gap(*_rounding(plan, agreement.arm), evidence.seen.get(agreement.arm, ()))
        judged, parted = judge([agreement], evidence.rankings, epsilon)
        results += judged
        divergences += parted
    store.write_divergences(divergences)
    for result in results:
        console.print(Text(_line(result)), soft_wrap=True)
    return results, divergences


@dataclass(frozen=True)
class _Evidence:
    """The best next tokens after every candidate's prefix, and the gaps that calibrate each arm's near-ties.

    `unasked`: the reference arms whose engine could not tell, with the reason.
    """

    rankings: Mapping[Candidate, Ranking]
    seen: Mapping[str, Sequence[float]]
    unasked: Mapping[str, str]


class _Gate:
    def __init__(self, plan: Plan, requests: pd.DataFrame, agreements: Sequence[Agreement], console: Console) -> None:
        self._plan = plan
        self._requests = requests
        self._agreements = agreements
        self._console = console

    async def evidence(self, choice: Choice) -> _Evidence:
        """Ask each engine about the candidates found on it."""
        found: dict[str, list[Agreement]] = {}
        for agreement in self._agreements:
            if agreement.reference:
                found.setdefault(agreement.reference, []).append(agreement)
        rankings: dict[Candidate, Ranking] = {}
        seen: dict[str, list[float]] = {}
        unasked: dict[str, str] = {}
        async with open_slots(choice, 1, _ANY_LOAD, self._say) as slots:
            for name, agreements in found.items():
                reference = self._plan.arm(name)
                candidates = [candidate for agreement in agreements for candidate in agreement.candidates]
                if not candidates:
                    continue
                try:
                    rankings |= await self._rankings(slots[0], reference, candidates)
                    parted = await self._contradictions(slots[0], reference)
                except EngineError as error:
                    unasked[name] = str(error)
                    continue
                # What another arm's texts showed is no excuse for an arm's own.
                seen |= {agreement.arm: [*parted, *_regrets(agreement, rankings)] for agreement in agreements}
        return _Evidence(rankings, seen, unasked)

    async def _rankings(self, slot: SlotHandle, arm: Arm, candidates: Sequence[Candidate]) -> dict[Candidate, Ranking]:
        prefixes = [candidate.prefix for candidate in candidates]
        rankings = await slot.rankings(arm, self._plan.deployments[arm.engine], prefixes)
        return dict(zip(candidates, rankings, strict=True))

    async def _contradictions(self, slot: SlotHandle, arm: Arm) -> list[float]:
        """The gaps at which plain decoding parts from itself; none where they would not be asked for."""
        setting, dtype = _rounding(self._plan, arm.name)
        if setting != "auto" or dtype == "float32":
            return []
        candidates = self_divergences(await self._twice(slot, arm), arm.name)
        rankings = await self._rankings(slot, arm, candidates)
        return [logit_gap(candidate, ranking) for candidate, ranking in rankings.items()]

    async def _twice(self, slot: SlotHandle, arm: Arm) -> pd.DataFrame:
        """Requests that hold the arm at two concurrencies: the sweep's own, or with one block measured once more."""
        trial = calibration_trial(self._plan, arm)
        if trial is None:
            return self._requests
        self._say(f"calibrating near-ties: {arm.name} on block {trial.block}, {trial.concurrency} at once")
        measurement = await slot.run(trial)
        if measurement.record.state is not TrialState.VALID:
            self._say(f"not calibrated at another batch size: {measurement.record.reason}")
            return self._requests
        again = measurement.requests.assign(
            trial=trial.digest, arm=arm.name, concurrency=trial.concurrency, block=trial.block
        )
        return pd.concat([self._requests, again], ignore_index=True)

    def _say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)


def _regrets(agreement: Agreement, rankings: Mapping[Candidate, Ranking]) -> list[float]:
    return [own_regret(candidate, rankings[candidate]) for candidate in agreement.candidates]


def _rounding(plan: Plan, arm: str) -> tuple[float | Literal["auto"], str]:
    """The near-tie that the sweep asks for, and the type that the arm's engine computes in."""
    return plan.spec.equivalence.near_tie, plan.deployments[plan.arm(arm).engine].dtype


def calibration_trial(plan: Plan, arm: Arm) -> Trial | None:
    """The arm's first trial at another concurrency than the sweep's only one. None where the sweep has several, or
    where a block of one prompt allows no other."""
    first = next(trial for trial in plan.trials if trial.arm == arm)
    measured = plan.spec.workload.concurrency
    others = [n for n in (CALIBRATION_CONCURRENCY, 1, 2) if n not in measured and n <= len(first.prompts)]
    if len(measured) > 1 or not others:
        return None
    return replace(first, concurrency=others[0], digest=f"calibration-{first.digest}")


def _line(result: GateResult) -> str:
    if result.passed:
        ties = (
            f", {result.near_ties} part at a near-tie of {result.near_tie_gap:.3g} at most" if result.near_ties else ""
        )
        return f"gate {result.arm}: passed, {result.exact} of {result.prompts} texts are plain decoding's{ties}"
    return f"gate {result.arm}: FAILED, {result.reason}"
