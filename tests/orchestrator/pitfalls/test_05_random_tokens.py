"""Random tokens for prompts: what is drafted for nonsense says nothing of what is drafted for text (vllm#52536)."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from orchestrator.prompts import PromptError, load_prompts
from orchestrator.prompts.loading import SETS
from orchestrator.spec import PromptSpec


def test_there_is_no_set_of_random_prompts() -> None:
    for name in ("random", "synthetic", "sharegpt-random"):
        with pytest.raises(ValidationError):
            PromptSpec.model_validate({"set": name})
    assert set(SETS) == {"orchestrate", "humaneval", "mtbench", "gsm8k", "file"}


@pytest.mark.parametrize("field", ["input_ids", "prompt_token_ids", "input_len"])
def test_a_file_holds_messages_and_not_token_ids(tmp_path: Path, field: str) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(json.dumps({"id": "a", "task": "chat", field: [17, 4, 99]}) + "\n")
    with pytest.raises(PromptError, match=f"unknown field `{field}`; allowed: id, task, prompt"):
        load_prompts(PromptSpec(set="file", path=str(path)))


def test_the_shipped_prompts_are_text_of_several_tasks() -> None:
    prompts = load_prompts(PromptSpec()).prompts
    words = [" ".join(content for _, content in prompt.messages).split() for prompt in prompts]
    assert min(len(own) for own in words) >= 3
    common = {"the", "a", "of", "to", "and", "in", "is", "that", "for", "it"}
    assert sum(bool(common & {word.lower() for word in own}) for own in words) >= 0.9 * len(words)
    assert len({prompt.task for prompt in prompts}) >= 4
