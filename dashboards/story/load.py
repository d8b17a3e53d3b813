"""What changes under load?"""

from __future__ import annotations

from dashboards import figures
from dashboards.run import Run
from dashboards.story.plate import Plate
from orchestrator.outputs import Payoff


def load(run: Run) -> list[Plate]:
    """Only of runs at several concurrencies."""
    summaries = run.decision.summaries if run.decision else []
    if len({summary.concurrency for summary in summaries}) < 2:
        return []
    crossed = [c for c in run.outputs.crossings if c.payoff is Payoff.CROSSES] if run.outputs else []
    against = [c for c in crossed if run.decision and c.against == run.decision.baseline]
    caption = "All requests together; where lines cross, another arm becomes the better choice."
    if against:
        caption += f" A ring is where an arm stops paying against {against[0].against}, prompt by prompt."
    speed = figures.throughput_by_concurrency(summaries, run.styles, against)
    return [Plate("concurrency", "Output speed by concurrency", caption, speed, wide=True), *_outputs(run)]


def _outputs(run: Run) -> list[Plate]:
    if run.outputs is None:
        return []
    plates = []
    found = run.outputs.crossings
    for number, against in enumerate(dict.fromkeys(crossing.against for crossing in found), 1):
        caption = (
            "Where an arm’s bar ends, the other has caught up, with the interval of that place, or it is no longer "
            "sure that the arm pays."
        )
        ranges = figures.payoff_ranges([c for c in found if c.against == against], run.styles)
        plates.append(Plate(f"payoff-{number}", f"How long it pays against {against}", caption, ranges))
    if run.outputs.rates:
        caption = (
            "Further right is quicker for one user, further up serves more of them; the dotted steps are the frontier."
        )
        trade = figures.pareto(run.outputs.rates, run.styles)
        plates.append(Plate("pareto", "One user’s speed against everybody’s", caption, trade, wide=True))
    return plates
