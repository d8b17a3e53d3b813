"""The table of arms beside what is stored: how far a run is, and which percentiles stand on too few requests."""

from __future__ import annotations

from dataclasses import replace

from dashboards.report import render
from dashboards.run import Run
from dashboards.table import progress, unsettled
from dashboards.text import percentile
from orchestrator.records import Look
from orchestrator.spec import BlockSpec


def look(blocks: int, **dropped: str) -> Look:
    told = {"time": "", "candidate": None, "half_width": None, "stop": ""}
    return Look.model_validate(told | {"concurrency": 1, "blocks": blocks, "dropped": dropped})


def test_what_is_planned_follows_the_looks(winner_run: Run) -> None:
    """Blocks come two at a time, and a dropped arm gets no more of them."""
    assert winner_run.spec is not None
    blocks = BlockSpec(count=4, max=16, step=2)
    run = replace(winner_run, spec=winner_run.spec.model_copy(update={"blocks": blocks}), decision=None)
    assert {row.planned for row in progress(run)} == {4}
    looked = replace(run, looks=[look(4, dflash="behind"), look(6)])
    assert {row.style.name: row.planned for row in progress(looked)}["dflash"] == 4
    assert {row.planned for row in progress(looked) if row.style.name != "dflash"} == {8}


def test_a_percentile_of_too_few_requests_is_marked_and_the_mark_explained(winner_run: Run) -> None:
    assert winner_run.decision is not None
    summary = winner_run.decision.summaries[0]
    few, many = summary.model_copy(update={"indicative": [90, 99]}), summary.model_copy(update={"indicative": [99]})
    assert percentile(few, "tpot", 90) == f"~{percentile(many, 'tpot', 90)}"
    assert percentile(few, "tpot", 50) == percentile(many, "tpot", 50)
    pages = []
    for each in (few, many):
        decision = winner_run.decision.model_copy(update={"summaries": [each]})
        run = replace(winner_run, decision=decision)
        assert bool(unsettled(run)) == (each is few)
        pages.append(render(run))
    assert ["too few to settle a percentile" in page for page in pages] == [True, False]


def test_a_report_says_that_engines_were_started_anew(winner_run: Run) -> None:
    said = "Engines were started anew for each block"
    assert winner_run.spec is not None
    anew = winner_run.spec.model_copy(update={"blocks": winner_run.spec.blocks.model_copy(update={"restart": True})})
    assert [said in render(run) for run in (winner_run, replace(winner_run, spec=anew))] == [False, True]
