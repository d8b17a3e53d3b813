"""Chat templates from model folders, in their sandbox."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engines.reference.serving.chat import ChatTemplate

USER = [{"role": "user", "content": "hi"}]


def write(folder: Path, template: str | None = None, **config: Any) -> Path:
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return folder


def render(folder: Path, **variables: Any) -> str:
    template = ChatTemplate.load(folder)
    assert template is not None
    return template.render(USER, variables)


def test_template_and_special_tokens_come_from_the_tokenizer_config(tmp_path: Path) -> None:
    source = "{{ bos_token }}{% for m in messages %}\n  {{- m.role }}:{{ m['content'] }}{{ eos_token }}\n{% endfor %}"
    write(tmp_path, chat_template=source, bos_token="<s>", eos_token={"content": "</s>", "special": True})
    assert render(tmp_path) == "<s>user:hi</s>\n"


def test_the_file_beats_the_config_and_the_default_of_a_list_is_used(tmp_path: Path) -> None:
    entries = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "listed"}]
    assert render(write(tmp_path, chat_template=entries)) == "listed"
    assert render(write(tmp_path, "file", chat_template=entries)) == "file"


def test_a_model_without_a_template_has_none(tmp_path: Path) -> None:
    assert ChatTemplate.load(tmp_path) is None
    assert ChatTemplate.load(write(tmp_path, chat_template=[{"name": "rag", "template": "x"}])) is None


def test_generation_prompt_variables_and_helpers(tmp_path: Path) -> None:
    source = (
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.content | tojson }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}{% if enable_thinking %}<think>{% endif %}"
        "{{ strftime_now('%Y') | length }}"
    )
    assert render(write(tmp_path, source), enable_thinking=True) == '"hi"<assistant><think>4'


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ messages[0].content + 1 }}", "concatenate"),
    ],
)
def test_what_a_template_refuses_or_must_not_do_is_a_value_error(tmp_path: Path, source: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        render(write(tmp_path, source))


def test_a_template_with_a_syntax_error_fails_at_load(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="chat template, line 2"):
        ChatTemplate.load(write(tmp_path, "ok\n{% for %}"))
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(ValueError, match="not JSON"):
        ChatTemplate.load(tmp_path)
