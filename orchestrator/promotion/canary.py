"""Is the new release worse than the old one? Pairs of the same prompt in the same round, and the router's log. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.promotion.spec import WatchSpec
from orchestrator.records import Interval
from orchestrator.statistics import Bootstrap, Floats, paired_estimate, trial_noise

MIN_ROUNDS = 4
"""What the requests of a round share, the state of the machine, is estimated from rounds: from two alone its interval
is so wide (one degree of freedom) that nothing would ever be surely worse."""
_RESAMPLES = 4000
_SIGNS = {"tpot": +1, "ttft": +1, "acceptance": -1}
"""The direction in which each metric gets worse."""


@dataclass(frozen=True)
class Finding:
    """One metric of the new release relative to the old one's; `worse` when it surely is, beyond the margin."""

    metric: str
    ratio: Interval
    worse: bool

    def words(self) -> str:
        return (
            f"{self.metric} {self.ratio.estimate:.2f}x the old release's ({self.ratio.low:.2f}-{self.ratio.high:.2f})"
        )


@dataclass(frozen=True)
class Errors:
    """Requests of a release, and those of them that failed or had to be taken over by another."""

    requests: int
    failed: int

    @property
    def share(self) -> float:
        return self.failed / self.requests if self.requests else 0.0


def compare(old: pd.DataFrame, new: pd.DataFrame, rule: WatchSpec) -> list[Finding]:
    """TPOT and TTFT (means and 90th percentiles) and acceptance length on answers that both gave.

    Both frames are metrics.measure's with a column `round`; a pair is one prompt in one round. Needs MIN_ROUNDS rounds
    of at least two prompts, else nothing is found.
    """
    pairs = old[old["ok"]].merge(new[new["ok"]], on=["round", "prompt_id"], suffixes=("_old", "_new"))
    if pairs["round"].nunique() < MIN_ROUNDS or len(pairs) < 2 * MIN_ROUNDS:
        return []
    findings = []
    for metric in ("tpot", "ttft", "acceptance"):
        logs, rounds = _logs(pairs, metric)
        if len(np.unique(rounds)) >= MIN_ROUNDS and len(logs) >= 2 * MIN_ROUNDS:
            findings.append(_mean(metric, logs, rounds, rule))
            findings += [_p90(metric, logs, rule)] if metric != "acceptance" else []
    return findings


def _logs(pairs: pd.DataFrame, metric: str) -> tuple[Floats, Any]:
    """Logs of a metric, pairs x (old, new), and the pairs' rounds; pairs without a value left out."""
    with np.errstate(divide="ignore"):  # an answer whose chunks all came at once has no time between them
        values = np.log(np.column_stack([_values(pairs, metric, side) for side in ("old", "new")]))
    there = np.isfinite(values).all(axis=1)
    return values[there], pairs["round"].to_numpy(dtype=np.int64)[there]


def _values(pairs: pd.DataFrame, metric: str, side: str) -> Floats:
    if metric != "acceptance":
        return np.asarray(pairs[f"{metric}_{side}"], dtype=float)
    steps = pairs[f"verify_steps_{side}"].to_numpy(dtype=float)
    accepted = pairs[f"accepted_{side}"].to_numpy(dtype=float)
    return np.asarray(1 + accepted / np.maximum(steps, 1))


def _mean(metric: str, logs: Floats, rounds: Any, rule: WatchSpec) -> Finding:
    bootstrap = _bootstrap(rule)
    ratio = paired_estimate(
        logs[:, 1] - logs[:, 0], rounds, trial_noise(logs, rounds), bootstrap, bootstrap.stream(metric)
    ).ratio()
    return Finding(_TITLES[metric], ratio, _worse(metric, ratio, rule.margin))


def _p90(metric: str, logs: Floats, rule: WatchSpec) -> Finding:
    """Ratio of the 90th percentiles, by resampling pairs."""
    draws = _bootstrap(rule).stream(metric, "p90").integers(0, len(logs), (_RESAMPLES, len(logs)))
    tails = np.quantile(logs[draws], 0.9, axis=1)
    ends = np.quantile(tails[:, 1] - tails[:, 0], [(1 - rule.confidence) / 2, (1 + rule.confidence) / 2])
    middle = np.diff(np.quantile(logs, 0.9, axis=0))[0]
    ratio = Interval(estimate=float(np.exp(middle)), low=float(np.exp(ends[0])), high=float(np.exp(ends[1])))
    return Finding(f"{_TITLES[metric]} p90", ratio, _worse(metric, ratio, rule.margin))


_TITLES = {"tpot": "TPOT", "ttft": "TTFT", "acceptance": "acceptance length"}


def _worse(metric: str, ratio: Interval, margin: float) -> bool:
    return ratio.low > 1 + margin if _SIGNS[metric] > 0 else ratio.high < 1 - margin


def _bootstrap(rule: WatchSpec) -> Bootstrap:
    return Bootstrap(rule.confidence, _RESAMPLES, 0)


def count_errors(log: Iterable[Mapping[str, Any]], release: str) -> Errors:
    """The router's requests for a release. Failed: answered with a 5xx, cut, or taken over by another replica."""
    mine = [entry for entry in log if str(entry["upstream"]).endswith(f"_{release}")]
    failed = [e for e in mine if int(e["status"]) >= 500 or e["complete"] != "OK" or "," in str(e["tried"])]
    return Errors(len(mine), len(failed))


def more_errors(old: Errors, new: Errors, rule: WatchSpec) -> str:
    """Why the new release fails too often; empty where it does not, or where that may be chance (Fisher's test)."""
    if new.share <= rule.max_error_share or new.share <= old.share:
        return ""
    from scipy.stats import fisher_exact

    table = [[new.failed, new.requests - new.failed], [old.failed, old.requests - old.failed]]
    if float(fisher_exact(table, alternative="greater").pvalue) > 1 - rule.confidence:
        return ""
    return (
        f"{new.failed} of {new.requests} requests failed or had to be taken over, "
        f"{old.failed} of {old.requests} on the old release"
    )


def worst(findings: Sequence[Finding]) -> str:
    """The findings that are worse, in words; empty for none."""
    return "; ".join(finding.words() for finding in findings if finding.worse)
