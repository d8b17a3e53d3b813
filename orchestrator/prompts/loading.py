"""From the sweep file's `prompts:` to the prompts themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.prompts import files, formats
from orchestrator.prompts.errors import PromptError
from orchestrator.prompts.prompt import Prompt, PromptSet, content_hash
from orchestrator.prompts.rows import Row, read_rows
from orchestrator.prompts.selection import draw
from orchestrator.spec import PromptSpec


@dataclass(frozen=True)
class DataSet:
    """How to find a data set's file, and to read a record of it."""

    locate: Callable[[str | None], Path]
    parse: Callable[[Row], Prompt]


SETS = {
    "orchestrate": DataSet(files.shipped, formats.own),
    "humaneval": DataSet(files.humaneval, formats.humaneval),
    "mtbench": DataSet(files.mtbench, formats.mtbench),
    "gsm8k": DataSet(files.gsm8k, formats.gsm8k),
    "file": DataSet(files.own, formats.own),
}


def load_prompts(spec: PromptSpec) -> PromptSet:
    """The prompts that `spec` asks for, in an order drawn from its seed. PromptError says what is wrong and where.

    A relative `path` counts from the working directory.
    """
    names = [spec.set] if isinstance(spec.set, str) else spec.set
    if not names or (spec.path is not None and len(names) > 1):
        raise PromptError(f"prompts.set: {len(names)} sets; allowed: one or more, and one where `path` is given")
    source = _unique(_read(names, spec.path))
    chosen = _of_tasks(source, spec.tasks)
    count = len(chosen) if spec.count is None else spec.count
    if count > len(chosen):
        raise PromptError(
            f"prompts.count: {count} is more than the {len(chosen)} prompts there are; none is used twice"
        )
    return PromptSet("+".join(names), content_hash(source), spec.seed, draw(chosen, count, spec.seed))


def _read(names: Sequence[str], path: str | None) -> Iterator[tuple[Row, Prompt]]:
    """Every prompt of these sets, with the record that it comes from."""
    for name in names:
        for row in read_rows(SETS[name].locate(path)):
            yield row, SETS[name].parse(row)


def _unique(read: Iterable[tuple[Row, Prompt]]) -> list[Prompt]:
    """The prompts. Two of one id, or of one text (a prefix cache would answer it), are an error."""
    prompts: list[Prompt] = []
    seen: dict[object, str] = {}
    for row, prompt in read:
        for what, value in (("id", prompt.prompt_id), ("prompt", prompt.messages)):
            if (what, value) in seen:
                raise PromptError(f"{row.where}: the same {what} as at {seen[what, value]}")
            seen[what, value] = row.where
        prompts.append(prompt)
    return prompts


def _of_tasks(prompts: list[Prompt], tasks: list[str] | None) -> list[Prompt]:
    if tasks is None:
        return prompts
    known = sorted({prompt.task for prompt in prompts})
    unknown = sorted(set(tasks) - set(known))
    if unknown or not tasks:
        raise PromptError(f"prompts.tasks: {unknown[0] if unknown else 'empty'!r}; allowed: {', '.join(known)}")
    return [prompt for prompt in prompts if prompt.task in tasks]
