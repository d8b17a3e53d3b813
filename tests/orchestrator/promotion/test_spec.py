from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.errors import InputError
from orchestrator.promotion.spec import LocalTarget, SshTarget, load_deploy, load_target

EXAMPLE = Path(__file__).parents[3] / "docs" / "deploy.example.yaml"
SSH = {"kind": "ssh", "root": "/srv/o", "interpreter": "/opt/venv/bin/python", "hosts": [{"name": "a", "address": "h"}]}


def write(folder: Path, target: dict[str, Any]) -> Path:
    path = folder / "deploy.yaml"
    path.write_text(yaml.safe_dump({"targets": {"prod": target}}, sort_keys=False))
    return path


def test_the_example_in_the_docs_is_valid() -> None:
    targets = load_deploy(EXAMPLE).targets
    assert isinstance(targets["local"], LocalTarget)
    assert isinstance(targets["production"], SshTarget)


@pytest.mark.parametrize(
    ("changes", "line", "complaint"),
    [
        ({"kind": "cloud"}, 2, "prod"),
        ({"root": "srv"}, 4, "absolute path"),
        ({"ports": [9, 8]}, 8, "first port must not be above"),
        ({"canary": [{"share": 50, "for_s": 1}, {"share": 5, "for_s": 1}]}, 8, "shares must grow"),
        ({"canary": [{"share": 100, "for_s": 1}]}, 9, "less than 100"),
        ({"supervisor": "compose"}, 3, "image"),
        ({"supervisor": "compose", "image": "engine:latest"}, 9, "image"),
        ({"hosts": [{"name": "a", "address": "h"}, {"name": "a", "address": "g"}]}, 3, "same name"),
        ({"hosts": [{"name": "a", "address": "-oProxyCommand=x"}]}, 8, "address"),
        ({"router": {"mode": "include"}}, 8, "include_path"),
        ({"router": {"listen": "0.0.0.0"}}, 9, "listen"),
        ({"routr": {}}, 8, "is not a known key"),
        ({"interpreter": None}, 3, "interpreter"),
    ],
)
def test_a_mistake_is_one_line_with_file_and_line(
    tmp_path: Path, changes: dict[str, Any], line: int, complaint: str
) -> None:
    path = write(tmp_path, SSH | changes)
    with pytest.raises(InputError) as caught:
        load_deploy(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:"), message
    assert complaint in message
    assert abs(int(message.removeprefix(f"{path}:").partition(":")[0]) - line) <= 1, message


def test_an_unknown_target_is_told_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no target 'test'; it has prod"):
        load_target(write(tmp_path, SSH), "test")
