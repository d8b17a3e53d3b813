import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from dashboards.app.server import Server, open_server
from tests.dashboards.synthetic import HOSTILE, INVALID, LOAD, TIE, WINNER, synthetic_run

CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of each kind: decided in every way, half-written, damaged in several places, empty, with markup."""
    folder = tmp_path_factory.mktemp("library")
    for name, scenario in {"winner": WINNER, "tie": TIE, "invalid": INVALID, "load": LOAD}.items():
        synthetic_run(folder / f"{name}-synthetic", scenario)
    synthetic_run(folder / "half-synthetic", WINNER, share=0.4, decided=False)
    damage(folder / "damaged-synthetic")
    hostile = synthetic_run(folder / "hostile-synthetic", TIE)
    sweep = hostile.folder / "sweep.yaml"
    sweep.write_text(sweep.read_text().replace(TIE.question, f"'{HOSTILE.replace(chr(39), chr(39) * 2)}'"))
    decision = hostile.decision()
    assert decision is not None
    hostile.write_decision(decision.model_copy(update={"question": HOSTILE, "sentence": HOSTILE}))
    (folder / "bare-synthetic").mkdir()
    (folder / "bare-synthetic" / "sweep.yaml").write_text("question: [")
    return folder


def damage(folder: Path) -> None:
    """A run with a cut-off decision, a requests file of nothing, a trial that is no JSON and a broken index."""
    store = synthetic_run(folder, WINNER)
    (folder / "decision.json").write_text('{"verdict":')
    (folder / "environment.json").write_text("nothing")
    first, second, *_ = sorted(store.trials_folder.iterdir())
    (first / "requests.parquet").write_bytes(b"PAR1")
    (second / "trial.json").write_text("{")
    (folder / "index").mkdir()
    (folder / "index" / "index.json").write_text("null")
    (folder / "index" / "card.json").write_text("null")


@pytest.fixture(scope="session")
def served(runs: Path) -> Iterator[str]:
    """The address of a dashboard over `runs`, without the last slash."""
    yield from serve(open_server(runs, "127.0.0.1", 0))


def serve(server: Server) -> Iterator[str]:
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    yield server.address.rstrip("/")
    server.wsgi.shutdown()
    thread.join(10)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("Debian's chromium is not installed")
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
    local = (address, "data:", "blob:")
    page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: (complaints.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda r: complaints.append(f"asked for {r.url}") if not r.url.startswith(local) else None)
    return page
