"""How was it measured?"""

from __future__ import annotations

from dashboards import figures
from dashboards.run import Run
from dashboards.story.plate import Plate


def conditions(run: Run) -> list[Plate]:
    plates = []
    if run.trials:
        caption = "A bar is a trial, labelled by its arm; a block runs its arms in random order. Hatched: not counted."
        timeline = figures.slot_timeline(run.trials, run.styles)
        plates.append(Plate("timeline", "What ran where, and when", caption, timeline, wide=True))
    if not run.telemetry.empty:
        caption = "Samples during the trials above, in the colour of the arm that ran; drifts and neighbours show here."
        strip = figures.telemetry_strip(run.telemetry, run.styles, figures.run_minutes(run.trials))
        plates.append(Plate("telemetry", "The machine meanwhile", caption, strip, wide=True))
    return plates
