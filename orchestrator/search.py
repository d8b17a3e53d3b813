"""Where to measure next: Optuna's ask and tell over tree budgets and concurrencies, for speed a user and speed in all.

Two goals and no scale between them, so what comes out is a front; the comparison that follows decides. Pure but for
Optuna, which is imported when it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.records import Place, Probe
from orchestrator.spec import SweepSpec

if TYPE_CHECKING:
    import optuna

_TRIES = 50
"""Proposals in a row that were measured before end a search: the ranges hold little else."""


class Searcher:
    """A search that knows its probes so far."""

    def __init__(self, spec: SweepSpec, probes: Sequence[Probe]) -> None:
        import optuna

        assert spec.search is not None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        # Another stretch of random numbers after each stop: a sampler begun anew would propose what it did before.
        sampler = optuna.samplers.TPESampler(seed=spec.search.seed + len(probes))
        self._study = optuna.create_study(directions=["maximize", "maximize"], sampler=sampler)
        self._space = _space(spec)
        self._known: dict[Place, Probe] = {}
        self._asked: dict[Place, optuna.trial.Trial] = {}
        for probe in probes:
            self._known[probe.place] = probe
            self._study.add_trial(_past(probe, self._space))

    def ask(self) -> Place | None:
        """A place that was neither measured nor asked for; None when there seems to be no other."""
        import optuna

        for _ in range(_TRIES):
            trial = self._study.ask(self._space)
            place = Place(trial.params["budget"], trial.params["concurrency"])
            if place in self._known:
                self._finish(trial, self._known[place])
            elif place in self._asked:
                self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                self._asked[place] = trial
                return place
        return None

    def tell(self, probe: Probe) -> None:
        """What came of a place that was asked for."""
        self._known[probe.place] = probe
        self._finish(self._asked.pop(probe.place), probe)

    def _finish(self, trial: optuna.trial.Trial, probe: Probe) -> None:
        import optuna

        if probe.tok_s_user is None or probe.tok_s_all is None:
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(trial, [probe.tok_s_user, probe.tok_s_all])


def front(probes: Sequence[Probe]) -> list[Probe]:
    """Probes that no other beats in both speeds, the fastest for a user first."""
    found = [probe for probe in probes if probe.tok_s_user is not None and probe.tok_s_all is not None]
    kept: list[Probe] = []
    for probe in sorted(found, key=lambda item: (item.tok_s_user, item.tok_s_all), reverse=True):
        if not kept or (probe.tok_s_all or 0) > (kept[-1].tok_s_all or 0):
            kept.append(probe)
    return kept


def finalists(probes: Sequence[Probe], count: int) -> list[Probe]:
    """At most `count` of the front, spread over it, both ends first."""
    edge = front(probes)
    if len(edge) <= count:
        return edge
    places = [round(i * (len(edge) - 1) / max(1, count - 1)) for i in range(count)]
    return [edge[place] for place in places]


def reach(spec: SweepSpec) -> SweepSpec:
    """The sweep with the ends of the search's ranges: what its engines must be able to serve."""
    search = spec.search
    assert search is not None
    ends = [search.arm(budget) for budget in sorted(set(search.budget))]
    labels = {arm.label() for arm in spec.expanded_arms()}
    levels = dict.fromkeys([*spec.workload.concurrency, *(search.concurrency or ())])
    changes: dict[str, Any] = {
        "arms": [*spec.arms, *(arm for arm in ends if arm.label() not in labels)],
        "workload": spec.workload.model_copy(update={"concurrency": list(levels)}),
    }
    return spec.model_copy(update=changes)


def with_finalists(spec: SweepSpec, probes: Sequence[Probe]) -> SweepSpec:
    """The sweep with the finalists' trees among its arms and, where concurrency was searched, their levels among its
    levels. What the file names already stays once."""
    assert spec.search is not None
    chosen = finalists(probes, spec.search.finalists)
    labels = {arm.label() for arm in spec.expanded_arms()}
    trees = [spec.search.arm(budget) for budget in sorted({probe.budget for probe in chosen})]
    levels = dict.fromkeys(spec.workload.concurrency)
    if spec.search.concurrency is not None:
        levels |= dict.fromkeys(sorted(probe.concurrency for probe in chosen))
    changes: dict[str, Any] = {
        "arms": [*spec.arms, *(tree for tree in trees if tree.label() not in labels)],
        "workload": spec.workload.model_copy(update={"concurrency": list(levels)}),
    }
    return spec.model_copy(update=changes)


def _space(spec: SweepSpec) -> dict[str, optuna.distributions.BaseDistribution]:
    from optuna.distributions import CategoricalDistribution, IntDistribution

    search = spec.search
    assert search is not None
    levels = search.concurrency
    return {
        "budget": IntDistribution(*search.budget, log=True),
        "concurrency": IntDistribution(*levels, log=True)
        if levels
        else CategoricalDistribution(spec.workload.concurrency),
    }


def _past(probe: Probe, space: dict[str, optuna.distributions.BaseDistribution]) -> optuna.trial.FrozenTrial:
    import optuna

    params = {"budget": probe.budget, "concurrency": probe.concurrency}
    if probe.tok_s_user is None or probe.tok_s_all is None:
        return optuna.trial.create_trial(state=optuna.trial.TrialState.FAIL, params=params, distributions=space)
    return optuna.trial.create_trial(params=params, distributions=space, values=[probe.tok_s_user, probe.tok_s_all])
