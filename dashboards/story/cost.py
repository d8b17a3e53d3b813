"""What does it cost?"""

from __future__ import annotations

from dashboards import figures
from dashboards.run import Run
from dashboards.story.plate import Plate


def cost(run: Run) -> list[Plate]:
    """At the decision's concurrency; nothing without prices and without power readings."""
    if run.outputs is None or run.decision is None:
        return []
    at = run.decision.concurrency
    rates = [rate for rate in run.outputs.rates if rate.concurrency == at]
    plates = []
    if figures.priced(rates, figures.USD):
        caption = f"At ${run.outputs.price_per_gpu_hour:g} for an hour of a GPU and {at} at once; shorter is cheaper."
        plates.append(Plate("usd", "Money", caption, figures.price_bars(rates, run.styles, figures.USD)))
    if figures.priced(rates, figures.JOULES):
        caption = f"The GPU’s own power readings over the load at {at} at once; shorter is cheaper."
        plates.append(Plate("joules", "Energy", caption, figures.price_bars(rates, run.styles, figures.JOULES)))
    return plates
