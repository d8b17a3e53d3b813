from pathlib import Path

from orchestrator.store import write_text


def test_written_text_is_never_half_there(tmp_path: Path) -> None:
    target = tmp_path / "file.json"
    write_text(target, "old")
    write_text(target, "new")
    assert target.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["file.json"]
