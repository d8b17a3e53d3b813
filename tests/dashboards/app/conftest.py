import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from dashboards.app.places import Places
from dashboards.app.server import Server, open_server
from tests.dashboards.synthetic import HOSTILE, INVALID, LOAD, TIE, WINNER, synthetic_run

CHROMIUM = shutil.which("chromium")
SCREENSHOTS = os.environ.get("ORCHESTRATE_SCREENSHOTS")
"""A folder that takes a picture of every page; none are taken without it."""

SHORT_SWEEP = """
question: Does a real run show on every page?
arms:
  - method: autoregressive
  - {method: ddtree, grid: {budget: [15]}}
workload: {prompts: {set: orchestrate, count: 4, seed: 11}, max_tokens: 16}
warmup: {max_requests: 2, max_tokens: 8}
blocks: {count: 2, seed: 11}
slo: {tpot_ms: 40}
profiles:
  local:
    match: {cpus: 2, memory_gib: 4}
    engine: reference
    engines: {reference: {device: cpu, dtype: bfloat16, threads: 2}}
    models: {target: smollm2-135m, drafter: smollm2-135m-dflash-b8}
"""

PATIENCE_MS = 60_000
"""How long a page may take on a machine that does other things; nothing here measures speed."""


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of each kind: decided in every way, half-written, damaged in several places, empty, with markup
    and the longest name there is."""
    folder = tmp_path_factory.mktemp("library")
    for name, scenario in {"winner": WINNER, "tie": TIE, "invalid": INVALID, "load": LOAD}.items():
        synthetic_run(folder / f"{name}-synthetic", scenario)
    synthetic_run(folder / "half-synthetic", WINNER, share=0.4, decided=False)
    damage(folder / "damaged-synthetic")
    longest = replace(TIE, arms=({"method": "autoregressive"}, {"method": "autoregressive", "name": "W" * 80}))
    hostile = synthetic_run(folder / "hostile-synthetic", longest)
    sweep = hostile.folder / "sweep.yaml"
    sweep.write_text(sweep.read_text().replace(TIE.question, f"'{HOSTILE.replace(chr(39), chr(39) * 2)}'"))
    decision = hostile.decision()
    assert decision is not None
    hostile.write_decision(decision.model_copy(update={"question": HOSTILE, "sentence": HOSTILE}))
    (folder / "bare-synthetic").mkdir()
    (folder / "bare-synthetic" / "sweep.yaml").write_text("question: [")
    return folder


def damage(folder: Path) -> None:
    """A run with a cut-off decision, requests and gauges of other types, a trial that is no JSON and one without a
    time, mistyped divergences and a broken index."""
    store = synthetic_run(folder, WINNER)
    (folder / "decision.json").write_text('{"verdict":')
    (folder / "environment.json").write_text("nothing")
    divergences = folder / "equivalence.parquet"
    pd.read_parquet(divergences).assign(gap="wide").to_parquet(divergences)
    first, second, third, fourth, *_ = sorted(store.trials.folder.iterdir())
    (first / "requests.parquet").write_bytes(b"PAR1")
    (second / "trial.json").write_text("{")
    timeless = json.loads((third / "trial.json").read_text()) | {"started_at": "then"}
    (third / "trial.json").write_text(json.dumps(timeless))
    for file, column in (("requests.parquet", "last"), ("telemetry.parquet", "cpu_percent")):
        pd.read_parquet(fourth / file).assign(**{column: "many"}).to_parquet(fourth / file)
    (folder / "index").mkdir()
    (folder / "index" / "index.json").write_text("null")
    (folder / "index" / "card.json").write_text("null")


@pytest.fixture(scope="session")
def served(runs: Path) -> Iterator[str]:
    """The address of a dashboard over `runs`, without the last slash."""
    yield from serve(open_server(Places(runs), "127.0.0.1", 0))


def serve(server: Server) -> Iterator[str]:
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    yield server.address.rstrip("/")
    server.wsgi.shutdown()
    thread.join(10)


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one real run: the reference engine and its model on this machine, as short as can be. Where the
    machine is not quiet the run is invalid, which is as real."""
    folder = tmp_path_factory.mktemp("measured")
    (folder / "short.yaml").write_text(SHORT_SWEEP)
    command = [str(Path(sys.executable).with_name("orchestrate")), "sweep", str(folder / "short.yaml")]
    command += ["--runs", str(folder / "runs")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3, 4, 5), done.stderr
    return folder / "runs"


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("Debian's chromium is not installed")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Browser, served: str) -> Iterator[Page]:
    """A page that fails its test on any error in the console and on any request to another address."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    complaints: list[str] = []
    opened = watched(context.new_page(), served, complaints)
    yield opened
    context.close()
    assert complaints == []


def watched(page: Page, address: str, complaints: list[str]) -> Page:
    """`page`, noting in `complaints` what it should not do."""
    page.set_default_timeout(PATIENCE_MS)
    local = (address, "data:", "blob:")
    page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: (complaints.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda r: complaints.append(f"asked for {r.url}") if not r.url.startswith(local) else None)
    return page


def shoot(page: Page, name: str) -> None:
    """Keep a picture of the page for people, where a folder for them is named."""
    if SCREENSHOTS:
        Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", full_page=True)
