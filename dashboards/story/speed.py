"""Which arm is faster?"""

from __future__ import annotations

from dashboards import figures
from dashboards.explain import decided_point, judged, winner
from dashboards.run import Run
from dashboards.story.plate import Plate
from dashboards.text import percent, ratio
from orchestrator.metrics import measure


def speed(run: Run) -> list[Plate]:
    decision = run.decision
    point = decided_point(decision) if decision else None
    if decision is None or point is None or not point.comparisons:
        return []
    forest = figures.speedup_forest(point.comparisons, run.styles, decision.margin, winner(decision))
    caption = (
        f"Each mark is the ratio of {decision.baseline}’s decode time to the arm’s on the same held-out prompts, "
        f"with its {percent(decision.confidence)} interval: a winner lies right of the dotted line at "
        f"{ratio(1 + decision.margin)} with all of it."
    )
    plates = [Plate("forest", f"Speed-up against {decision.baseline}", caption, forest)]
    measured = measure(run.requests[run.requests["concurrency"] == decision.concurrency])
    found = judged(decision)
    if found:
        contender = found.arm
        scatter = figures.paired_scatter(measured, run.styles, contender, decision.baseline)
        caption = (
            f"Each mark is one prompt run by both arms; below the solid line {contender} was faster, "
            "below the dotted one at least twice as fast."
        )
        plates.append(Plate("pairs", f"{contender}, prompt by prompt", caption, scatter))
    return plates
