from pathlib import Path, PurePosixPath

import pytest

from engines import places
from engines.base import EngineError
from engines.digests import digest, digest_of
from orchestrator.promotion.host import Unit
from orchestrator.promotion.hosts.local import LocalHost
from orchestrator.promotion.place import ReplicaPlace
from orchestrator.promotion.supervisors.process import ProcessSupervisor


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """With all that a digest leaves out, and a link, as model stores have."""
    folder = tmp_path / "a model"
    (folder / "deeper").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "deeper" / "weights").write_bytes(b"\0" * 5000)
    (folder / "linked").symlink_to(folder / "deeper" / "weights")
    (folder / ".cache").mkdir()
    (folder / ".cache" / "x").write_text("left out")
    (folder / "manifest.json").write_text("left out")
    return folder


@pytest.fixture
def place(tmp_path: Path) -> ReplicaPlace:
    here = PurePosixPath(tmp_path)
    unit = Unit("u", ("true",), {}, here, here / "unit", here, (), 18100)
    return ReplicaPlace(LocalHost(), ProcessSupervisor(), unit)


def test_a_digest_taken_on_a_host_is_the_one_taken_here(place: ReplicaPlace, model: Path) -> None:
    assert places.digest(place, str(model)) == digest(model) == places.digest(None, str(model))
    (model / "config.json").write_text("{ }")
    assert places.digest(place, str(model)) != digest(model), "it was taken once for all replicas of a host"
    place.known.clear()
    assert places.digest(place, str(model)) == digest(model)


def test_a_folder_that_is_not_there_is_an_error(place: ReplicaPlace, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="no folder on its host"):
        places.digest(place, str(tmp_path / "none"))
    with pytest.raises(EngineError, match="no folder here"):
        places.digest(None, str(tmp_path / "none"))


def test_the_digest_of_nothing_is_no_model_s() -> None:
    assert digest_of({".hidden": "x", "manifest.json": "y"}) == digest_of({}) != digest_of({"a": "x"})


def test_a_file_is_read_where_the_server_is(place: ReplicaPlace, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("{}")
    assert place.read(str(tmp_path / "report.json")) == b"{}"
    assert place.read(str(tmp_path / "none")) is None
    assert place.port == 18100
