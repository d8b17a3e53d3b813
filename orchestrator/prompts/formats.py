"""From a record of each data set to a prompt of ours."""

from __future__ import annotations

from orchestrator.prompts.errors import PromptError
from orchestrator.prompts.prompt import Prompt
from orchestrator.prompts.rows import Row

COMPLETE_FUNCTION = "Complete this Python function. Answer with the whole function in one code block.\n\n"


def own(row: Row) -> Prompt:
    """{id, task, prompt}: our own format."""
    row.allow("id", "task", "prompt")
    return _user_turn(row.text("id"), row.text("task"), row.text("prompt"))


def humaneval(row: Row) -> Prompt:
    """HumanEval (arXiv 2107.03374): a signature and docstring, asked for as a chat turn."""
    return _user_turn(row.text("task_id"), "code", COMPLETE_FUNCTION + f"```python\n{row.text('prompt').strip()}\n```")


def mtbench(row: Row) -> Prompt:
    """MT-Bench (arXiv 2306.05685), FastChat's fields or the hub's: the first turn; the task is the category."""
    key = "turns" if "turns" in row.fields else "prompt"
    turns = row.fields.get(key)
    if not isinstance(turns, list) or not turns or not isinstance(turns[0], str) or not turns[0].strip():
        raise PromptError(f"{row.where}: `turns` must be a list that begins with a string, not {turns!r}")
    identity = row.fields.get("question_id", row.fields.get("prompt_id"))
    if not isinstance(identity, int | str):
        raise PromptError(f"{row.where}: `question_id` must be a number or a string, not {identity!r}")
    return _user_turn(f"mtbench/{identity}", row.text("category"), turns[0])


def gsm8k(row: Row) -> Prompt:
    """GSM8K (arXiv 2110.14168): the question. Its records carry no id, so the line is the id."""
    return _user_turn(f"gsm8k/{row.where.rpartition(':')[2]}", "maths", row.text("question"))


def _user_turn(prompt_id: str, task: str, content: str) -> Prompt:
    return Prompt(prompt_id, task, (("user", content),))
