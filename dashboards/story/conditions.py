"""How was it measured?"""

from __future__ import annotations

from dashboards import figures
from dashboards.run import Run
from dashboards.story.plate import Plate


def conditions(run: Run) -> list[Plate]:
    plates = []
    if run.trials:
        caption = "A bar is a trial, labelled by its arm; each block has an order of its own. Hatched: not counted."
        if run.spec and run.spec.blocks.restart:
            caption += " Engines were started anew for each block, so that intervals hold the luck of a start."
        timeline = figures.slot_timeline(run.trials, run.styles)
        plates.append(Plate("timeline", "What ran where, and when", caption, timeline, wide=True))
    if not run.telemetry.empty:
        caption = "Samples during the trials above, in the colour of the arm that ran; drifts and neighbours show here."
        strip = figures.telemetry_strip(run.telemetry, run.styles, figures.run_minutes(run.trials))
        plates.append(Plate("telemetry", "The machine meanwhile", caption, strip, wide=True))
    return plates
