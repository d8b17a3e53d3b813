"""What the arms' servers said of themselves, before each trial: which attention, which widths, how much cache."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from dashboards.facts import flatten
from dashboards.run import Run
from dashboards.theme import ArmStyle
from orchestrator.records import TrialRecord, TrialState

_NOTHING = "–"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SHOWN = 12
"""Characters of a digest."""


@dataclass(frozen=True)
class Words:
    """`differ`: what is not the same for all, with a text for each of `arms`, "–" where one said nothing. `same`: the
    rest."""

    arms: list[ArmStyle]
    differ: dict[str, list[str]]
    same: dict[str, str]


def words(run: Run) -> Words:
    """By the identities in a run's valid trials: several texts where an arm's trials disagree, empty without any."""
    said: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for trial in run.trials:
        if trial.state is TrialState.VALID:
            for name, text in _told(trial).items():
                texts = said[trial.arm].setdefault(name, [])
                if (short := _short(text)) not in texts:
                    texts.append(short)
    arms = [style for name, style in run.styles.items() if name in said]
    rows = {name: [" / ".join(said[arm.name].get(name, [_NOTHING])) for arm in arms] for name in _names(said)}
    same = {name: texts[0] for name, texts in rows.items() if len(arms) > 1 and len(set(texts)) == 1}
    return Words(arms, {name: texts for name, texts in rows.items() if name not in same}, same)


def automatic(trial: TrialRecord) -> bool:
    """Whether the server chose its tree's budget step by step."""
    settings = trial.identity.get("settings")
    return isinstance(settings, Mapping) and settings.get("policy") == "auto"


def _told(trial: TrialRecord) -> dict[str, str]:
    """A setting by its name alone, unless the identity says something else under that name."""
    whole = dict(flatten(trial.identity))
    short = {name: name.removeprefix("settings.") for name in whole}
    return {name if whole.get(short[name], text) != text else short[name]: text for name, text in whole.items()}


def _names(said: Mapping[str, Mapping[str, object]]) -> list[str]:
    return list(dict.fromkeys(name for own in said.values() for name in own))


def _short(text: str) -> str:
    if text == "null":
        return _NOTHING
    return text[:_SHOWN] if _DIGEST.fullmatch(text) else text
