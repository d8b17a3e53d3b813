"""How fast the dashboard opens on a large store, in a real browser: 200 runs, 10,000 trials, 5 million requests.

    python -m benchmarks.dashboard --store FOLDER [--output FILE]

The store's numbers are SYNTHETIC: `benchmarks.large_store`. Needs Chromium (`--chromium`) and Playwright.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from benchmarks.large_store import RUNS, count, make_store
from dashboards.app.runs_page import FIRST
from orchestrator.environment import describe

REPEATS = 5


def measure(folder: Path, chromium: str) -> dict[str, object]:
    """Seconds until a page shows what it is opened for, a new browser and a new server each time they are "first";
    else medians. A `new_store` has no card yet."""
    runs = [f"synthetic-{number:03d}" for number in range(RUNS - REPEATS - 1, RUNS)]
    for card in folder.glob("*/index/card.json"):
        card.unlink()
    with _server(folder) as (address, _), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        new_store = _list(browser.new_page(), address)
        browser.close()
    with _server(folder) as (address, started), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        lists = [_list(page, address) for _ in range(REPEATS + 1)]
        pages = [_run(page, address, name) for name in runs]
        linked = [_follow(page, address, name) for name in reversed(runs)]
        browser.close()
    return {
        "server_start_s": round(started, 3),
        "list_new_store_s": round(new_store, 3),
        "list_first_s": round(lists[0], 3),
        "list_s": round(statistics.median(lists[1:]), 3),
        "run_first_s": round(pages[0][0], 3),
        "run_s": round(statistics.median(shown for shown, _ in pages[1:]), 3),
        "run_first_figure_s": round(statistics.median(drawn for _, drawn in pages[1:]), 3),
        "run_by_link_s": round(statistics.median(linked), 3),
    }


def _list(page: Page, address: str) -> float:
    began = time.perf_counter()
    page.goto(address)
    page.locator("table.runs tbody tr").nth(FIRST - 1).wait_for()
    return time.perf_counter() - began


def _run(page: Page, address: str, name: str) -> tuple[float, float]:
    """Until the verdict and the arms stand there, and until the first figure is drawn."""
    began = time.perf_counter()
    page.goto(f"{address}runs/{name}")
    page.locator("table.arms").wait_for()
    shown = time.perf_counter() - began
    page.wait_for_selector(".js-plotly-plot .main-svg", state="attached")
    return shown, time.perf_counter() - began


def _follow(page: Page, address: str, name: str) -> float:
    """From the list to a run by its link: no page is loaded."""
    _list(page, address)
    began = time.perf_counter()
    page.click(f"a[href='/runs/{name}']")
    page.locator("table.arms").wait_for()
    return time.perf_counter() - began


@contextmanager
def _server(folder: Path) -> Iterator[tuple[str, float]]:
    """The address of a dashboard in a process of its own, and the seconds until it listened."""
    began = time.perf_counter()
    command = [str(Path(sys.executable).with_name("orchestrate")), "dashboard", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            yield line.split()[1], time.perf_counter() - began
        finally:
            process.terminate()


def _machine(chromium: str) -> dict[str, object]:
    """What the seconds were measured on, and how busy it was when they were."""
    told = describe()
    version = subprocess.run([chromium, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return {
        "cpu": told["cpu"],
        "cores": os.cpu_count(),
        "memory_bytes": told["memory_bytes"],
        "python": platform.python_version(),
        "chromium": version,
        "load_average_before": round(os.getloadavg()[0], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/dashboard.json"))
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    arguments = parser.parse_args()
    make_store(arguments.store)
    result = {
        "synthetic": True,
        "machine": _machine(arguments.chromium),
        "store": count(arguments.store),
        "limits": {"list_s": 1.0, "run_s": 2.0},
        "seconds": measure(arguments.store, arguments.chromium),
    }
    arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
