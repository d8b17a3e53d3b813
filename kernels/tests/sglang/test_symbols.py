"""The table against packages made here; CI runs it against SGLang's own wheels (`python -m ddtree.sglang check`)."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ddtree.sglang import symbols
from ddtree.sglang.sources import Sources, members, parameters
from ddtree.sglang.symbols import Symbol

SOURCE = {
    "pkg/__init__.py": "from pkg.inner import Thing as Renamed\nfrom .star import *\n",
    "pkg/inner.py": """
import enum
from dataclasses import dataclass
if True:
    @dataclass
    class Thing:
        first: int
        second: str = ""
        def act(self, one, *, two): ...
else:
    Thing = None
class Kind(enum.Enum):
    A = 1
""",
    "pkg/star.py": "def starred(x, /, y, *, z): ...\n",
}


@pytest.fixture(params=["folder", "wheel"])
def sources(tmp_path: Path, request: pytest.FixtureRequest) -> Sources:
    if request.param == "folder":
        for name, text in SOURCE.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        return Sources(tmp_path)
    wheel = tmp_path / "pkg-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in SOURCE.items():
            archive.writestr(name, text)
    return Sources(wheel)


def test_definitions_are_found_where_they_are_written_and_where_they_are_imported(sources: Sources) -> None:
    thing = sources.find("pkg", ["Renamed"])
    assert thing is not None
    assert members(thing) == {"first", "second", "act"}
    assert parameters(thing) == {"first", "second", "act"}
    act = sources.find("pkg.inner", ["Thing", "act"])
    assert act is not None
    assert parameters(act) == {"self", "one", "two"}
    starred = sources.find("pkg", ["starred"])
    assert starred is not None
    assert parameters(starred) == {"x", "y", "z"}
    assert sources.find("pkg", ["missing"]) is None
    assert sources.find("pkg.nowhere", ["Thing"]) is None


@pytest.mark.parametrize(
    ("symbol", "problem"),
    [
        (Symbol("pkg:Renamed", has=("first", "act")), None),
        (Symbol("pkg.inner:Thing.act", ("one", "two")), None),
        (Symbol("pkg.inner:Kind", has=("A",)), None),
        (Symbol("pkg.inner:Gone"), "pkg.inner:Gone is missing"),
        (Symbol("pkg.inner:Thing.act", ("three",)), "pkg.inner:Thing.act takes no three"),
        (Symbol("pkg.inner:Kind", has=("A", "B")), "pkg.inner:Kind has no B"),
        (Symbol("pkg.newer:Gone", since="pkg.newer"), None),
        (Symbol("pkg.inner:Gone", since="pkg.inner"), "pkg.inner:Gone is missing"),
    ],
)
def test_a_difference_names_the_symbol(sources: Sources, symbol: Symbol, problem: str | None) -> None:
    assert symbols._problem(symbol, sources) == problem


def test_every_symbol_is_used_by_the_plugin() -> None:
    folder = Path(symbols.__file__).parent
    code = "".join(path.read_text() for path in folder.glob("*.py") if path.name != "symbols.py")
    for symbol in symbols.SYMBOLS:
        name = symbol.path.rpartition(":")[2].split(".")[-1]
        assert name in code or name == "load_plugins" or any(f".{member}" in code for member in symbol.has), name


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "ddtree.sglang", *arguments], capture_output=True, text=True)


def test_the_command_says_which_symbols_a_package_lacks(tmp_path: Path) -> None:
    ended = run("check", str(tmp_path))
    assert ended.returncode == 1
    assert "does not fit" in ended.stdout
    assert "sglang.srt.speculative.dflash_worker_v2:DFlashWorkerV2 is missing" in ended.stdout


@pytest.mark.parametrize("arguments", [[], ["run"], ["check", "a", "b"], ["check", "/no/such/wheel.whl"]])
def test_bad_input_ends_with_code_2_and_one_line(arguments: list[str]) -> None:
    ended = run(*arguments)
    assert ended.returncode in (1, 2)
    assert "Traceback" not in ended.stderr
