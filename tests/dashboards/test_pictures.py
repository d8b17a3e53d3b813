import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dashboards.pictures import picture, write_pictures
from dashboards.run import Run
from dashboards.story import chapters
from orchestrator.errors import InputError
from orchestrator.store import RunStore
from tests.dashboards.synthetic import TIE, synthetic_run


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    """A run with few figures: it has no decision."""
    return synthetic_run(tmp_path_factory.mktemp("runs") / "half-synthetic", TIE, share=0.5, decided=False)


def test_a_picture_has_its_title_and_leaves_the_plate_alone(winner_run: Run) -> None:
    plate = chapters(winner_run)[0].plates[0]
    before = plate.figure.to_json()
    figure = picture(plate)
    assert plate.title in figure.layout.title.text
    assert figure.layout.height > plate.figure.layout.height
    assert plate.figure.to_json() == before


def test_without_chromium_one_line_says_what_to_install(
    small: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="apt-get install chromium"):
        write_pictures(small, tmp_path / "figures", ["png"])


def report(store: RunStore, path: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command itself: another test's Playwright keeps an event loop running in this process."""
    program = str(Path(sys.executable).with_name("orchestrate"))
    command = [program, "report", str(store.folder), "--output", str(path), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


@pytest.mark.browser
@pytest.mark.skipif(shutil.which("chromium") is None, reason="Debian's chromium is not installed")
def test_every_figure_is_written_as_png_and_pdf(small: RunStore, tmp_path: Path) -> None:
    done = report(small, tmp_path / "a <b>.html", "--png", "--pdf")
    assert done.returncode == 0, done.stderr
    written = sorted((tmp_path / "a <b>-figures").iterdir())
    assert f"{len(written)} pictures" in done.stdout
    assert {path.stem for path in written if path.suffix == ".png"} == {p.stem for p in written if p.suffix == ".pdf"}
    assert len(written) >= 10
    for path in written:
        head = {".png": b"\x89PNG\r\n", ".pdf": b"%PDF-"}[path.suffix]
        assert path.read_bytes().startswith(head)
        assert path.stat().st_size > 2_000


@pytest.mark.browser
def test_a_browser_that_dies_is_one_line_and_the_page_is_there(small: RunStore, tmp_path: Path) -> None:
    broken = tmp_path / "bin" / "chromium"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    done = report(small, tmp_path / "report.html", "--png", PATH=f"{broken.parent}:/usr/bin:/bin")
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert f"cannot be drawn with {broken}" in line
    assert (tmp_path / "report.html").exists()


@pytest.mark.browser
def test_a_folder_that_cannot_be_written_is_bad_input(small: RunStore, tmp_path: Path) -> None:
    (tmp_path / "report-figures").write_text("")
    done = report(small, tmp_path / "report.html", "--png")
    assert done.returncode == 2
    assert "report-figures" in done.stderr.strip().splitlines()[-1]
