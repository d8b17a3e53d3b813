"""Who may import whom, as docs/architecture.md says: told by every import statement in the tree."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from engines.registry import engine_names, get_engine

ROOT = Path(__file__).parents[1]
PACKAGES = {"orchestrator": ROOT, "engines": ROOT, "dashboards": ROOT, "ddtree": ROOT / "kernels"}

HEAVY = {"torch", "triton", "transformers", "tokenizers", "safetensors", "sglang", "vllm", "ddtree"}
ACTING = {"ray", "aiohttp", "asyncio", "subprocess", "socket", "signal", "multiprocessing", "fabric", "paramiko"}


def named(package: str, names: str) -> set[str]:
    return {f"{package}.{name}" for name in names.split()}


RAY = named("orchestrator", "cluster driver pool slots")
HTTP = {"engines.client", "engines.fake.server"}
PLAIN = named("engines", "base child containers digests home messages packages places probing progress")
PURE = (
    named("orchestrator", "answer decision disturbance equivalence errors identity judgement orders outputs")
    | named("orchestrator", "plan rounds search selection source statistics stopping synthetic times validity verdict")
    | named("orchestrator", "stage_identity wiring")
    | named("orchestrator.load", "arrivals backlog chunks events stream traces")
    | named("orchestrator.promotion", "canary host routes spec")
)
PURE_ROOMS = named("orchestrator", "metrics records spec")
DOORS = {"orchestrator.prompts", "engines.base", "engines.messages"}
DASHBOARDS = named(
    "orchestrator", "cards damage errors index metrics outputs promotion records rounds shelf spec store times"
)


@dataclass(frozen=True)
class Import:
    """`late`: inside a function. `run` is False where only a type checker reads it."""

    module: str
    line: int
    late: bool
    run: bool


def imports_of(text: str, package: str) -> Iterator[Import]:
    """Every import of a module that lies in `package`; `from a import b` as `a` and, in case it is one, as `a.b`."""

    def walk(node: ast.AST, late: bool, run: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            inside = late or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            runs = run and not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test))
            if isinstance(child, ast.Import):
                yield from (Import(alias.name, child.lineno, inside, runs) for alias in child.names)
            if isinstance(child, ast.ImportFrom):
                above = package.split(".")[: len(package.split(".")) - child.level + 1] if child.level else []
                origin = ".".join([*above, *filter(None, [child.module])])
                names = [origin, *(f"{origin}.{alias.name}" for alias in child.names)]
                yield from (Import(name, child.lineno, inside, runs) for name in names)
            yield from walk(child, inside, runs)

    yield from walk(ast.parse(text), late=False, run=True)


@cache
def tree() -> dict[str, tuple[Import, ...]]:
    """Module to its imports; of ours only those that are modules."""
    paths: dict[str, Path] = {}
    for name, folder in PACKAGES.items():
        for path in (folder / name).rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    found = {}
    for module, path in paths.items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        told = imports_of(path.read_text(encoding="utf-8"), package)
        found[module] = tuple(each for each in told if not ours(each.module) or each.module in paths)
    return found


def ours(module: str) -> bool:
    return top(module) in PACKAGES


def top(module: str) -> str:
    return module.partition(".")[0]


def below(*rooms: str) -> list[str]:
    found = [module for module in tree() if any(module == room or module.startswith(f"{room}.") for room in rooms)]
    assert found, f"no module in {rooms}"
    return found


def reached(module: str) -> set[str]:
    """What is imported when a module is, itself and packages above included."""
    seen: set[str] = set()
    todo = [module]
    while todo:
        current = todo.pop()
        if current in seen:
            continue
        seen.add(current)
        if current in tree():
            todo += [each.module for each in tree()[current] if each.run and not each.late]
            todo += [current.rpartition(".")[0]] if "." in current else []
    return seen


def foreign(modules: set[str]) -> set[str]:
    """Distributions of others."""
    return {top(module) for module in modules if not ours(module)} - sys.stdlib_module_names


def refuse(modules: list[str], allowed: set[str], *, rooms: bool = False) -> None:
    """Fail for an import of ours outside `allowed` (with `rooms`, what lies below them too)."""
    wrong = [
        f"{module}:{each.line} imports {each.module}"
        for module in modules
        for each in tree()[module]
        if ours(each.module)
        and each.module not in PACKAGES
        and each.module not in allowed
        and not (rooms and any(each.module.startswith(f"{room}.") for room in allowed))
    ]
    assert not wrong, "\n".join(wrong)


def test_imports_are_seen_wherever_they_stand() -> None:
    text = (
        "if TYPE_CHECKING:\n    import a\n"
        "def f():\n    import b\n"
        "class C:\n    from .c import d\n"
        "from ..e import f\n"
        "from . import g\n"
    )

    found = {(each.module, each.line, each.late, each.run) for each in imports_of(text, "x.y")}

    assert {("a", 2, False, False), ("b", 4, True, True), ("x.y.c", 6, False, True)} <= found
    assert {("x.e", 7, False, True), ("x.y.g", 8, False, True)} <= found


def test_the_control_plane_knows_no_torch() -> None:
    stated = {m: HEAVY & {top(each.module) for each in tree()[m]} for m in below("orchestrator", "dashboards")}
    through = {m: HEAVY & foreign(reached(m)) for m in below("orchestrator", "dashboards")}

    assert not {m: found for m, found in stated.items() if found}
    assert not {m: found for m, found in through.items() if found}


def test_ray_is_imported_in_functions_of_few_modules() -> None:
    users = {m: [each for each in tree()[m] if top(each.module) == "ray"] for m in tree()}

    assert {m for m, found in users.items() if found} == RAY
    assert all(each.late for found in users.values() for each in found)


def test_http_is_spoken_in_few_modules() -> None:
    assert {m for m in tree() if any(top(each.module) == "aiohttp" for each in tree()[m])} <= HTTP


def test_engines_know_nobody_above_them() -> None:
    above = {"orchestrator", "dashboards"}

    assert not [(m, each.line) for m in below("engines") for each in tree()[m] if top(each.module) in above]


@pytest.mark.parametrize("module", sorted(PLAIN | set(below("engines.base"))))
def test_plain_modules_of_engines_need_the_standard_library(module: str) -> None:
    assert not foreign(reached(module))
    refuse([module], PLAIN | set(below("engines.base")))


@pytest.mark.parametrize("name", engine_names())
def test_an_adapter_needs_nothing_of_its_engine(name: str) -> None:
    modules = reached(f"engines.{name}.adapter")

    assert foreign(modules) <= {"aiohttp"}
    assert not {each.module for m in modules & tree().keys() for each in tree()[m] if top(each.module) in HEAVY}


def test_rooms_of_engines_elsewhere_need_nothing_of_theirs() -> None:
    modules = below("engines.envs", "engines.sglang", "engines.vllm")

    assert not foreign({each.module for m in modules for each in tree()[m]})


def test_an_engine_is_named_by_the_registry_alone() -> None:
    rooms = {f"engines.{name}" for name in engine_names()}
    namings = [
        (m, each.line)
        for m in below("orchestrator", "dashboards", "engines")
        for each in tree()[m]
        if any(f"{each.module}.".startswith(f"{room}.") and not f"{m}.".startswith(f"{room}.") for room in rooms)
    ]

    assert not namings


def test_the_reference_engine_takes_digests_and_kernels_from_outside() -> None:
    rooms = {"ddtree", "engines.reference", "engines.digests"}

    refuse([m for m in below("engines.reference") if m != "engines.reference.adapter"], rooms, rooms=True)


def test_the_reference_server_binds_its_port_before_torch_comes() -> None:
    assert "torch" not in foreign(reached("engines.reference.server"))


def test_kernels_stand_alone() -> None:
    plugin = set(below("ddtree.sglang"))
    outside = {m: {each.module for each in tree()[m]} for m in set(below("ddtree")) - plugin}

    refuse(below("ddtree"), {"ddtree"}, rooms=True)
    assert foreign({each.module for m in plugin for each in tree()[m]}) <= {"sglang", "torch", "triton"}
    assert foreign(set().union(*outside.values())) <= {"torch", "triton"}
    assert not [m for m, modules in outside.items() if modules & plugin]


@pytest.mark.parametrize("name", ["limits", "plugin", "policy", "report", "settings", "sources", "symbols"])
def test_the_plugin_can_be_asked_without_sglang(name: str) -> None:
    assert foreign(reached(f"ddtree.sglang.{name}")) <= {"torch", "triton"}


def test_dashboards_read_records_and_measure_nothing() -> None:
    refuse(below("dashboards"), {"dashboards", "engines.base", "engines.messages", *DASHBOARDS}, rooms=True)
    users = {m for m in tree() if any(top(each.module) == "dashboards" for each in tree()[m])}

    assert users - set(below("dashboards")) <= set(below("orchestrator.cli"))


@pytest.mark.parametrize("module", sorted(PURE | set(below(*PURE_ROOMS))))
def test_what_computes_does_not_act(module: str) -> None:
    acts = [f"{module}:{each.line} {each.module}" for each in tree()[module] if top(each.module) in ACTING]

    assert not acts
    refuse([module], PURE | DOORS | set(below(*PURE_ROOMS)))


@pytest.mark.parametrize(
    ("room", "may"),
    [
        ("engines.base", set()),
        ("orchestrator.records", set()),
        ("orchestrator.spec", {"engines.base", *named("orchestrator", "errors source")}),
        ("orchestrator.store", {"engines.base", "engines.messages", *named("orchestrator", "errors outputs records")}),
    ],
)
def test_what_many_build_on_stands_on_little_and_has_one_door(room: str, may: set[str]) -> None:
    inside = set(below(room))

    refuse(sorted(inside), inside | may)
    assert not [(m, each.line) for m in tree().keys() - inside for each in tree()[m] if each.module in inside - {room}]


def test_promotion_starts_no_sweep() -> None:
    assert not {m: reached(m) & RAY for m in below("orchestrator.promotion") if reached(m) & RAY}


def test_the_load_process_starts_light() -> None:
    readers = {get_engine(name).dialect.reader.partition(":")[0] for name in engine_names()} - {""}
    child = reached("orchestrator.load.child")
    own = {m for m in child if ours(m)} - set(below("orchestrator.load"))

    assert foreign(child) == {"httptools", "msgspec", "orjson", "uvloop"}
    assert own == {"orchestrator", "engines", "engines.messages", *below("engines.base")}
    assert not foreign(set().union(*map(reached, readers)))


@pytest.mark.parametrize(
    "module",
    [
        "orchestrator.janitor",
        "orchestrator.leash",
        "engines.sglang.probe",
        "engines.vllm.probe",
        "engines.vllm.repair.sitecustomize",
        *below("orchestrator.promotion.supervisors.keeper"),
    ],
)
def test_what_runs_by_its_path_needs_the_standard_library(module: str) -> None:
    keeper = set(below("orchestrator.promotion.supervisors.keeper"))

    assert not foreign({each.module for each in tree()[module]})
    refuse([module], keeper if module in keeper else set())


def test_hosts_and_supervisors_know_the_contract_alone() -> None:
    modules = below("orchestrator.promotion.hosts", "orchestrator.promotion.supervisors")
    rooms = {f"orchestrator.promotion.{room}" for room in ("host", "hosts", "supervisors")}
    lines = {"orchestrator.engine_log"}  # the line that compose quotes of a log

    refuse(modules, rooms | lines, rooms=True)
    assert foreign({each.module for m in modules for each in tree()[m]}) <= {"fabric", "invoke", "jinja2", "paramiko"}
