from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict

from orchestrator.errors import InputError
from orchestrator.source import Source


class Leaf(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int


class Root(BaseModel):
    model_config = ConfigDict(extra="forbid")
    leaves: list[Leaf]
    named: dict[str, Leaf | None] = {}
    width: int | Literal["auto"] | list[int] = "auto"


def source(tmp_path: Path, text: str) -> Source:
    path = tmp_path / "file.yaml"
    path.write_text(text, encoding="utf-8")
    return Source(path)


def complaint(tmp_path: Path, text: str) -> str:
    with pytest.raises(InputError) as caught:
        source(tmp_path, text).parse(Root)
    return str(caught.value).replace(str(tmp_path) + "/", "")


def test_valid_document_is_parsed(tmp_path: Path) -> None:
    assert source(tmp_path, "leaves:\n  - size: 3\n").parse(Root) == Root(leaves=[Leaf(size=3)])


def test_wrong_value_names_its_line_and_the_value(tmp_path: Path) -> None:
    message = complaint(tmp_path, "leaves:\n  - size: 1\n  - size: many\n")
    assert message.startswith("file.yaml:3: leaves.1.size:")
    assert "'many'" in message


def test_unknown_key_names_its_line(tmp_path: Path) -> None:
    assert complaint(tmp_path, "leaves:\n  - size: 1\n    colour: red\n") == (
        "file.yaml:3: leaves.0.colour: is not a known key; allowed: size"
    )
    assert complaint(tmp_path, "leaves: []\nnamed:\n  one: {size: 1, hue: 2}\ncolour: red\n").splitlines() == [
        "file.yaml:3: named.one.hue: is not a known key; allowed: size",
        "file.yaml:4: colour: is not a known key; allowed: leaves, named, width",
    ]


def test_missing_key_names_the_line_of_its_parent(tmp_path: Path) -> None:
    assert complaint(tmp_path, "\nleaves:\n  - {}\n").startswith("file.yaml:3: leaves.0.size:")


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (
            "wide",
            "width: Input should be a valid integer, unable to parse string as an integer or 'auto' or a valid list",
        ),
        ("[1, many]", "width.1: Input should be a valid integer, unable to parse string as an integer, not 'many'"),
        ("{a: 1}", "width: Input should be a valid integer or 'auto' or a valid list"),
    ],
)
def test_a_value_of_several_kinds_is_one_complaint(tmp_path: Path, width: str, said: str) -> None:
    (line,) = complaint(tmp_path, f"leaves: []\nwidth: {width}\n").splitlines()
    assert line.removesuffix(", not 'wide'") == f"file.yaml:2: {said}"


def test_every_complaint_is_listed(tmp_path: Path) -> None:
    assert len(complaint(tmp_path, "leaves:\n  - size: a\n  - size: b\n").splitlines()) == 2


def test_key_given_twice_is_refused(tmp_path: Path) -> None:
    assert complaint(tmp_path, "leaves: []\nleaves: []\n") == "file.yaml:2: the key 'leaves' stands here twice"


@pytest.mark.parametrize(
    "text", ["leaves: [1,", "a: b: c", "\tx: 1", "!!python/object/apply:os.system [ls]", "leaves: &a [*a]"]
)
def test_broken_or_unsafe_yaml_is_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError) as caught:
        source(tmp_path, text).parse(Root)
    assert "file.yaml" in str(caught.value)


@pytest.mark.parametrize("text", ["", "- 1\n", "just words\n"])
def test_a_document_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="expected a mapping"):
        source(tmp_path, text)


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.yaml: cannot be read"):
        Source(tmp_path / "absent.yaml")


def test_override_sets_values_in_mappings_and_lists(tmp_path: Path) -> None:
    document = source(tmp_path, "leaves:\n  - size: 1\n")
    document.override("leaves.0.size=5")
    assert document.parse(Root).leaves[0].size == 5


def test_a_value_of_an_override_is_blamed_on_it(tmp_path: Path) -> None:
    document = source(tmp_path, "leaves:\n  - size: 1\n  - size: x\n")
    document.override("leaves.0.size=many")
    with pytest.raises(InputError) as caught:
        document.parse(Root)
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"{document.path}: --set leaves.0.size=many: leaves.0.size: ")
    assert second.startswith(f"{document.path}:3: leaves.1.size: ")


@pytest.mark.parametrize("text", ["leaves", "=1", "leaves.7.size=1", "leaves.x=1"])
def test_bad_override_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="--set"):
        source(tmp_path, "leaves: []\n").override(text)
