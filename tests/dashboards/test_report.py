import base64
import hashlib
import itertools
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from dashboards.facts import flatten
from dashboards.report import embed, render, write_report
from dashboards.run import Run, load_run
from dashboards.table import arm_groups
from dashboards.theme import ArmKey, arm_styles
from engines.base import SpecCounters
from orchestrator.errors import InputError
from orchestrator.records import Pause, TrialState, request_frame
from orchestrator.store import RunStore
from tests.dashboards.synthetic import HOSTILE, WINNER, Scenario, synthetic_run

VOID = {"meta", "link", "br", "img", "input"}


class Page(HTMLParser):
    """A page's elements. `text` is what a reader sees; `scripts` are (attributes, content)."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.scripts: list[tuple[dict[str, str], str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == [], f"left open: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.elements.append((tag, attributes))
        if tag in ("td", "th", "li", "dt", "dd"):
            self.text += " "
        if tag not in VOID:
            self._open.append(tag)
        if tag == "script":
            self.scripts.append((attributes, ""))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            attributes, content = self.scripts.pop()
            self.scripts.append((attributes, content + data))
        elif not self._open or self._open[-1] != "style":
            self.text += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


@pytest.fixture(scope="session")
def winner_page(winner_run: Run) -> Page:
    return Page(render(winner_run))


def test_report_is_written_where_asked(winner_store: RunStore, tmp_path: Path) -> None:
    path = tmp_path / "out.html"
    assert write_report(winner_store, path) == path
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_winner_is_stated_with_its_gain(winner_page: Page, winner_run: Run) -> None:
    assert winner_run.decision is not None
    won = next(c for c in winner_run.decision.points[0].comparisons if c.arm == winner_run.decision.arm)
    assert f"{winner_run.decision.sentence}." in winner_page.words
    assert f"{won.speedup.estimate:.2f}× {won.speedup.low:.2f}–{won.speedup.high:.2f}" in winner_page.words
    assert "✓ winner" in winner_page.words
    assert "Why not the others" in winner_page.words


def test_a_failed_gate_is_named_among_the_reasons(winner_page: Page) -> None:
    assert "ddtree-budget=63 equivalence gate failed: 2 of 32 texts differ" in winner_page.words


def test_table_holds_every_arm_with_its_interval(winner_page: Page, winner_run: Run) -> None:
    assert winner_run.decision is not None
    for arm in winner_run.decision.summaries:
        speed = arm.output_tok_s
        assert f"{arm.arm} {speed.estimate:.1f} {speed.low:.1f}–{speed.high:.1f}" in winner_page.words


def test_divergences_show_both_texts(winner_page: Page) -> None:
    assert len(winner_page.all("ins")) == len(winner_page.all("del")) == 6
    assert "gap 2.75, violation" in winner_page.words
    assert "gap 0.125, near-tie" in winner_page.words


def test_tie_says_what_to_keep_and_marks_no_winner(tie_run: Run) -> None:
    page = Page(render(tie_run))
    assert "= tie" in page.words
    assert "Tie at concurrency 1: keep autoregressive" in page.words
    assert "autoregressive-again 1.00×" in page.words
    assert "does not clear the margin of 1.02×" in page.words
    assert not [row for row in page.all("tr") if row.get("class") == "won"]


def test_invalid_run_names_the_trials_that_do_not_count(invalid_run: Run) -> None:
    page = Page(render(invalid_run))
    assert "! invalid" in page.words
    assert "1 trial does not count" in page.words
    assert "autoregressive 1 1 invalid other processes took 1.4 cores" in page.words


def test_several_concurrencies_are_a_group_each_the_decided_one_first(load_run_of_many: Run) -> None:
    words = Page(render(load_run_of_many)).words
    places = [words.index(text) for text in ("1 request at once (the", "2 requests at once", "4 requests at once")]
    assert places == sorted(places)
    assert "What changes under load?" in words


def test_doubts_about_an_arm_stand_under_the_table(winner_run: Run) -> None:
    assert winner_run.decision is not None
    assert not [row for group in arm_groups(winner_run) for row in group.rows if row.caveats]
    pauses = {"paused_trials": 2, "longest_pause": Pause(seconds=0.597, window=1.478)}
    doubts = {"unsettled_trials": 3, "identity_error": 0.12, **pauses}
    first, *rest = winner_run.decision.summaries
    decision = winner_run.decision.model_copy(update={"summaries": [first.model_copy(update=doubts), *rest]})
    words = Page(render(replace(winner_run, decision=decision))).words
    assert f"{first.arm}: in 3 of 4 trials the speed was not flat yet when the warm-up ended." in words
    assert f"{first.arm}: step time over acceptance length is 12.0 % off the TPOT measured, more than 5 %." in words
    told = "in 2 of 4 trials nothing arrived for up to 0.60 s of 1.48 s while requests were in flight."
    assert f"{first.arm}: {told}" in words


def test_half_written_run_shows_what_there_is(tmp_path: Path) -> None:
    store = synthetic_run(tmp_path / "half", WINNER, share=0.5, decided=False)
    page = Page(render(load_run(store)))
    assert "No decision yet: 12 trials so far (12 valid)." in page.words
    assert "data-timeline" in {attributes.get("id") for attributes, _ in page.scripts}
    assert "autoregressive 4 2 0 0" in page.words


def test_trials_in_flight_are_counted(tmp_path: Path) -> None:
    store = synthetic_run(tmp_path / "half", WINNER, share=0.25, decided=False)
    entry = store.entries()[0]
    store.journal(entry.model_copy(update={"trial": "9" * 64, "state": TrialState.STARTED}))
    assert "7 trials so far (1 started, 6 valid)" in Page(render(load_run(store))).words


def test_empty_run_says_so(tmp_path: Path) -> None:
    store = synthetic_run(tmp_path / "empty", WINNER, share=0, decided=False)
    page = Page(render(load_run(store)))
    assert "Nothing has been measured yet." in page.words
    assert page.all("figure") == []


def test_a_folder_without_a_run_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no run here \(sweep\.yaml is missing\)"):
        write_report(RunStore(tmp_path), tmp_path / "report.html")


def test_a_place_that_cannot_be_written_is_bad_input(winner_store: RunStore, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_report(winner_store, tmp_path / "missing" / "report.html")


def test_failed_trials_without_numbers_are_shown(tmp_path: Path) -> None:
    store = synthetic_run(tmp_path / "failing", WINNER, share=0.25, decided=False)
    blank: dict[str, object] = {
        "identity": {},
        "stages": None,
        "duration": 0.0,
        "state": TrialState.FAILED,
        "reason": "engine died",
    }
    failed = store.trials.records()[0].model_copy(update=blank)
    store.trials.write(failed, request_frame([]), pd.DataFrame(), SpecCounters(), None, b"")
    page = Page(render(load_run(store)))
    assert "Damaged files" not in page.words
    assert f"{failed.arm} 1 0 failed engine died" in page.words


@pytest.mark.parametrize(
    ("pattern", "content"),
    [
        ("decision.json", b'{"verdict": "winner"'),
        ("decision.json", b'{"verdict": "loser"}'),
        ("environment.json", b"\xff\xfe"),
        ("environment.json", b"[1, 2]"),
        ("equivalence.parquet", b"not parquet"),
        ("sweep.yaml", b"arms: [unclosed"),
        ("sweep.yaml", b"question: too short\n"),
        ("trials/*/trial.json", b"{}"),
        ("trials/*/requests.parquet", b""),
        ("trials/*/telemetry.parquet", b"PAR1"),
    ],
)
def test_a_damaged_file_is_named_and_the_rest_is_shown(fresh_store: RunStore, pattern: str, content: bytes) -> None:
    damaged = next(fresh_store.folder.glob(pattern))
    damaged.write_bytes(content)
    page = Page(render(load_run(fresh_store)))
    assert "Damaged files" in page.words
    assert damaged.name in page.words
    assert "The arms" in page.words
    assert "orchestrate sweep runs/damaged-synthetic/sweep.yaml" in page.words


def test_a_missing_environment_is_named(fresh_store: RunStore) -> None:
    (fresh_store.folder / "environment.json").unlink()
    assert "environment.json" in Page(render(load_run(fresh_store))).words


def test_nothing_is_loaded_from_anywhere(winner_page: Page) -> None:
    sources = [value for _, attributes in winner_page.elements for name, value in attributes.items() if name == "src"]
    assert sources == []
    assert [link["href"] for link in winner_page.all("link")] == ["data:,"]
    assert all(anchor["href"].startswith("#") for anchor in winner_page.all("a"))
    assert "url(" not in (Path(__file__).parents[2] / "dashboards/templates/report.css").read_text(encoding="utf-8")


def test_only_the_pages_own_scripts_may_run(winner_page: Page) -> None:
    policy = next(m["content"] for m in winner_page.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    code = [content for attributes, content in winner_page.scripts if attributes.get("type") != "application/json"]
    hashes = [base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() for content in code]
    assert len(code) == 2
    assert re.findall(r"'sha256-([^']+)'", policy) == hashes
    assert "default-src 'none'" in policy
    assert not [name for _, attributes in winner_page.elements for name in attributes if name.startswith("on")]


def test_plotly_is_there_once(winner_page: Page) -> None:
    assert sum("plotly.js v" in content[:200] for _, content in winner_page.scripts) == 1


def test_every_figure_has_its_data_and_its_description(winner_page: Page) -> None:
    data = {attributes["id"]: content for attributes, content in winner_page.scripts if "id" in attributes}
    places = [attributes for attributes in winner_page.all("div") if attributes.get("class") == "drawing"]
    assert len(places) == len(data) >= 17
    for place in places:
        assert json.loads(data[place["data-source"]])["layout"]["height"] > 0
        assert len(place["data-label"]) > 40


def test_page_can_be_walked_through(winner_page: Page) -> None:
    levels = [int(tag[1]) for tag, _ in winner_page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    ids = [attributes["id"] for _, attributes in winner_page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {anchor["href"][1:] for anchor in winner_page.all("a")} <= set(ids)
    named = {attributes["aria-labelledby"] for _, attributes in winner_page.elements if "aria-labelledby" in attributes}
    assert named <= set(ids)
    assert all("scope" in header for header in winner_page.all("th"))
    assert all(box.get("tabindex") == "0" for box in winner_page.all("div") if box.get("class") == "scroll")
    labels = [box["aria-label"] for box in winner_page.all("div") if box.get("role") == "region"]
    assert len(labels) == len(set(labels)) >= 4


def test_text_of_a_run_stays_text(tmp_path: Path) -> None:
    scenario = Scenario(
        f"Is it safe? {HOSTILE}", WINNER.arms, divergent={"dflash": [0.1]}, bad={"ddtree-budget=7": HOSTILE}
    )
    store = synthetic_run(tmp_path / "<i>run", scenario)
    environment = json.loads((store.folder / "environment.json").read_text())
    (store.folder / "environment.json").write_text(json.dumps(environment | {HOSTILE: HOSTILE}))
    page = Page(render(load_run(store)))
    assert page.all("img") == []
    assert len([1 for attributes, _ in page.scripts if "id" not in attributes]) == 2
    assert f"Is it safe? {HOSTILE}" in page.words
    assert "<i>run" in page.words
    assert page.words.count("alert('x')") >= 4


def test_embedded_figures_cannot_end_their_script() -> None:
    import plotly.graph_objects as go

    data = str(embed(go.Figure(go.Scatter(name=HOSTILE + "<!--\u2028"))))
    assert not set("<>&") & set(data)
    assert json.loads(data)["data"][0]["name"] == HOSTILE + "<!--\u2028"


def test_environment_is_flattened() -> None:
    values = {"a": {"b": 1, "c": {}}, "d": "text", "e": [1, "é"]}
    assert list(flatten(values)) == [("a.b", "1"), ("a.c", "{}"), ("d", "text"), ("e", '[1, "é"]')]
    engine = {"packages_digest": "ab", "packages": {"torch": "2.9 cd", "numpy": "2.0 ef"}}
    told = dict(flatten({"inputs": {"engines": {"vllm": engine}}, "packages": {"ray": "2"}}))
    assert told == {
        "inputs.engines.vllm.packages_digest": "ab",
        "inputs.engines.vllm.packages": "2 installed",
        "packages.ray": "2",
    }


def test_unknown_arms_in_records_still_have_a_look(winner_run: Run) -> None:
    assert set(winner_run.styles) >= set(winner_run.divergences["arm"])
    assert arm_styles([ArmKey("a", "", None)])["a"].label == "a"
