"""Python sources of a package, read and not run: from a folder, an installation or a wheel."""

import ast
import importlib.util
import zipfile
from functools import lru_cache
from pathlib import Path

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.AnnAssign


class Sources:
    """`root` holds the package's folder: site-packages, an unpacked wheel, or the wheel itself."""

    def __init__(self, root: Path) -> None:
        self._root: Path | zipfile.Path = zipfile.Path(root) if root.is_file() else root
        self._parsed = lru_cache(maxsize=None)(self._parse)

    @classmethod
    def installed(cls, package: str) -> "Sources":
        """Where this interpreter would import the package from. ImportError where it would not."""
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise ImportError(f"{package} is not installed in this interpreter")
        return cls(Path(spec.origin).parents[1])

    def find(self, module: str, names: list[str]) -> Definition | None:
        """The definition of an attribute of a module, through what the module imports; None where there is none."""
        body = self._parsed(module)
        found: Definition | None = None
        for name in names:
            found = _defined(body, name)
            if found is None:
                return self._elsewhere(module, body, names)
            body = found.body if isinstance(found, ast.ClassDef) else []
        return found

    def _elsewhere(self, module: str, body: list[ast.stmt], names: list[str]) -> Definition | None:
        """The definition in a module that this one imports it from, by name or with a star."""
        for statement in _flat(body):
            if not isinstance(statement, ast.ImportFrom):
                continue
            origin = self._absolute(module, statement)
            for alias in statement.names:
                if alias.name == "*" or (alias.asname or alias.name) == names[0]:
                    found = self.find(origin, names if alias.name == "*" else [alias.name, *names[1:]])
                    if found is not None:
                        return found
        return None

    def _absolute(self, module: str, statement: ast.ImportFrom) -> str:
        """The module an import names, its dots resolved."""
        if statement.level == 0:
            return statement.module or ""
        package = self.text(f"{module.replace('.', '/')}/__init__.py") is not None
        parts = module.split(".")
        kept = parts[: len(parts) - statement.level + package]
        return ".".join([*kept, *([statement.module] if statement.module else [])])

    def exists(self, module: str) -> bool:
        """Whether there is such a module."""
        return bool(self._parsed(module))

    def text(self, path: str) -> str | None:
        """A file of the root, None where there is none."""
        file = self._root / path
        return file.read_text(encoding="utf-8") if file.is_file() else None

    def _parse(self, module: str) -> list[ast.stmt]:
        path = module.replace(".", "/")
        text = self.text(f"{path}.py") or self.text(f"{path}/__init__.py")
        return [] if text is None else ast.parse(text).body


def parameters(found: Definition) -> set[str]:
    """Of a function, or of a class's constructor, written or implied by its annotations."""
    if isinstance(found, ast.ClassDef):
        constructor = _defined(found.body, "__init__")
        return members(found) if constructor is None else parameters(constructor)
    if isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef)):
        given = found.args
        return {argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
    return set()


def members(found: Definition) -> set[str]:
    """Names that a class body defines: methods, fields, enum members."""
    body = found.body if isinstance(found, ast.ClassDef) else []
    return {name for statement in body for name in _names(statement)}


def _defined(body: list[ast.stmt], name: str) -> Definition | None:
    for statement in _flat(body):
        if isinstance(statement, Definition) and name in _names(statement):
            return statement
    return None


def _flat(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements, with those of conditions and tries in place of them."""
    flat: list[ast.stmt] = []
    for statement in body:
        inner = [part for field in ("body", "orelse", "handlers") for part in getattr(statement, field, [])]
        flat += _flat(inner) if isinstance(statement, (ast.If, ast.Try)) else [statement]
    return flat


def _names(statement: ast.stmt) -> list[str]:
    if isinstance(statement, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return [statement.name]
    if isinstance(statement, ast.AnnAssign):
        return [statement.target.id] if isinstance(statement.target, ast.Name) else []
    if isinstance(statement, ast.Assign):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return []
