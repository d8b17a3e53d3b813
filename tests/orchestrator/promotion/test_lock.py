import json
import os
import subprocess
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from orchestrator.errors import InputError
from orchestrator.promotion.hosts.local import LocalHost
from orchestrator.promotion.lock import held, holder

HOST = LocalHost()


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PurePosixPath:
    monkeypatch.setenv("ORCHESTRATE_HOME", str(tmp_path / "home"))
    return PurePosixPath(tmp_path / "root" / "lock")


def left_by(path: PurePosixPath, **changes: Any) -> None:
    """A lock that its owner did not take away."""
    with held(HOST, path, "t") as owner:
        left = json.loads(owner.model_dump_json()) | changes
    Path(path).write_text(json.dumps(left))


def test_one_gets_it_and_the_other_a_clear_message(path: PurePosixPath) -> None:
    with held(HOST, path, "production"):
        words = rf"production: a change is going on \(.*process {os.getpid()}, since .*--break-lock"
        with pytest.raises(InputError, match=words), held(HOST, path, "production"):
            pass
        assert holder(HOST, path) is not None
    assert holder(HOST, path) is None
    with held(HOST, path, "production"):
        pass


def test_the_lock_of_a_dead_process_of_this_machine_is_taken_over(path: PurePosixPath) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    left_by(path, pid=gone.pid)
    assert holder(HOST, path) is None
    with held(HOST, path, "t") as owner:
        assert owner.pid == os.getpid()


@pytest.mark.parametrize("changes", [{"started": 1.0}, {"boot": "another"}])
def test_a_process_id_used_again_is_not_the_owner(path: PurePosixPath, changes: dict[str, Any]) -> None:
    left_by(path, **changes)
    with held(HOST, path, "t"):
        pass


def test_the_lock_of_another_machine_needs_the_flag(path: PurePosixPath) -> None:
    left_by(path, machine="elsewhere", pid=1)
    with pytest.raises(InputError, match="@elsewhere"), held(HOST, path, "t"):
        pass
    with held(HOST, path, "t", break_lock=True) as owner:
        assert owner.machine != "elsewhere"
    assert not Path(path).exists()


def test_somebody_elses_file_is_left_alone(path: PurePosixPath) -> None:
    Path(path).parent.mkdir(parents=True)
    Path(path).write_text("not ours")
    with pytest.raises(InputError, match="not a lock of ours"), held(HOST, path, "t"):
        pass
    assert Path(path).read_text() == "not ours"
