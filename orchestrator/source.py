"""YAML files read so that every complaint can name its file and line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from orchestrator.errors import InputError

M = TypeVar("M", bound=BaseModel)


class Source:
    """A parsed YAML document that remembers the line of every key and item."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._overrides: dict[tuple[str, ...], str] = {}
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
        try:
            self._node = yaml.compose(text, Loader=yaml.SafeLoader)
            self.data: Any = yaml.safe_load(text)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise InputError(f"{path}:{line}: not valid YAML: {error.problem}") from error
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise InputError(f"{path}: not valid YAML: {error}") from error
        if not isinstance(self.data, dict):
            raise InputError(f"{path}:1: expected a mapping of keys to values")
        self._refuse_duplicates()

    def _refuse_duplicates(self) -> None:
        pending, walked = [self._node], set()
        while pending:
            node = pending.pop()
            if id(node) in walked:  # an alias: walked where its anchor stands
                continue
            walked.add(id(node))
            if isinstance(node, yaml.MappingNode):
                self._check_keys(node)
                pending += [value for _, value in node.value]
            elif isinstance(node, yaml.SequenceNode):
                pending += node.value

    def _check_keys(self, node: yaml.MappingNode) -> None:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise InputError(f"{self.path}:{key.start_mark.line + 1}: the key {key.value!r} stands here twice")
            seen.add(key.value)

    def line(self, location: Sequence[str | int]) -> int:
        """Line (from 1) of the deepest part of `location` that stands in the file."""
        node, line = self._node, 1
        for step in location:
            found = _child(node, step)
            if found is None:
                continue  # a step of pydantic's own, such as the tag of a union
            line, node = found
        return line

    def override(self, assignment: str) -> None:
        """Set `dotted.key=value` in the document; list items by their index. The value is read as YAML."""
        path, separator, text = assignment.partition("=")
        if not separator or not path:
            raise InputError(f"--set {assignment}: expected key=value, with dots between keys")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise InputError(f"--set {assignment}: the value is not valid YAML") from error
        *parents, last = path.split(".")
        node = self.data
        for step in parents:
            node = node.setdefault(step, {}) if isinstance(node, dict) else _item(node, step, assignment)
        if isinstance(node, dict):
            node[last] = value
        else:
            _item(node, last, assignment)
            node[int(last)] = value
        self._overrides[*parents, last] = assignment

    def parse(self, model: type[M]) -> M:
        """The document as `model`; InputError with file, line and what is allowed."""
        try:
            return model.model_validate(self.data)
        except ValidationError as error:
            raise InputError("\n".join(self._complaints(error.errors(), model))) from error

    def _complaints(self, items: Sequence[Any], model: type[BaseModel]) -> list[str]:
        """A line for each place. Where a value may be of several kinds, those that look deepest into it count."""
        groups: dict[tuple[str | int, ...], list[Any]] = {}
        for item in items:
            groups.setdefault(self._real(item), []).append(item)
        unions = {place for place, some in groups.items() if any(place != item["loc"] for item in some)}
        deeper = {place for place in unions for other in groups if place != other and place == other[: len(place)]}
        return [self._complaint(place, some, model) for place, some in groups.items() if place not in deeper]

    def _real(self, item: Any) -> tuple[str | int, ...]:
        """The complaint's location without steps of pydantic's own, such as what names the member of a union."""
        value, steps = self.data, list[str | int]()
        for step in item["loc"]:
            if (isinstance(value, dict) and step in value) or (isinstance(value, list) and isinstance(step, int)):
                value = value[step]
                steps.append(step)
        return (*steps, *item["loc"][-1:]) if item["type"] == "missing" else tuple(steps)

    def _complaint(self, place: tuple[str | int, ...], items: Sequence[Any], model: type[BaseModel]) -> str:
        where = ".".join(str(step) for step in place) or "the file"
        message = _either([item["msg"].removeprefix("Value error, ") for item in items])
        item = items[0]
        if item["type"] == "extra_forbidden":
            message = f"is not a known key; allowed: {', '.join(_keys_at(model, item['loc'][:-1]))}"
        elif item["type"] != "missing" and not isinstance(item["input"], dict | list):
            message = f"{message}, not {item['input']!r}"
        return f"{self._place(place)}: {where}: {message}"

    def _place(self, location: Sequence[str | int]) -> str:
        """The file and line to blame, or the --set that put the value there."""
        steps = tuple(str(step) for step in location)
        for path, assignment in reversed(self._overrides.items()):
            if steps and all(mine == theirs for mine, theirs in zip(path, steps, strict=False)):
                return f"{self.path}: --set {assignment}"
        return f"{self.path}:{self.line(location)}"


def _either(messages: Sequence[str]) -> str:
    """What any one of several kinds would have been content with."""
    first, *others = dict.fromkeys(messages)
    return " or ".join([first, *(other.removeprefix("Input should be ") for other in others)])


def _keys_at(model: type[BaseModel], location: Sequence[str | int]) -> list[str]:
    """The keys allowed at a place. List indices and mappings' own keys lead to no field: the place stays; what names
    the member of a union does as well, and narrows it."""
    found: list[Any] = [model]
    for step in location:
        inside = [kind.model_fields[step].annotation for kind in _models(found) if step in kind.model_fields]
        found = inside or [kind for kind in _models(found) if kind.__name__ == step] or found
    return sorted({key for kind in _models(found) for key in kind.model_fields})


def _models(annotations: Sequence[Any]) -> Iterator[type[BaseModel]]:
    """The models among these types and inside their unions, lists and mappings."""
    for annotation in annotations:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield annotation
        else:
            yield from _models(get_args(annotation))


def _child(node: yaml.Node | None, step: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(step):
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        item = node.value[step]
        return item.start_mark.line + 1, item
    return None


def _item(node: object, step: str, assignment: str) -> Any:
    if not isinstance(node, list) or not step.isdecimal() or int(step) >= len(node):
        raise InputError(f"--set {assignment}: there is nothing at {step!r}")
    return node[int(step)]
