"""The model's chat template: messages to prompt text, as the model folder says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


class ChatTemplate:
    """A compiled template. It comes with the model, so it runs in a sandbox."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ValueError(f"chat template, line {error.lineno}: {error.message}") from error
        self._special_tokens = dict(special_tokens)

    @classmethod
    def load(cls, folder: Path) -> ChatTemplate | None:
        """From chat_template.jinja, else tokenizer_config.json; None where the model has none."""
        config = _read_config(folder / "tokenizer_config.json")
        source = _file_source(folder / "chat_template.jinja") or _config_source(config.get("chat_template"))
        return cls(source, _special_tokens(config)) if source else None

    def render(self, messages: Sequence[Mapping[str, str]], variables: Mapping[str, Any]) -> str:
        """The prompt up to where the assistant's answer begins. ValueError where the template refuses."""
        try:
            return self._template.render(
                **(self._special_tokens | {"messages": messages, "add_generation_prompt": True} | dict(variables))
            )
        except (jinja2.TemplateError, TypeError, ArithmeticError, LookupError) as error:
            raise ValueError(f"the model's chat template refuses these messages: {error}") from error


def _environment() -> jinja2.Environment:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda pattern: datetime.now().astimezone().strftime(pattern)
    return environment


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path}: not a JSON object")
    return config


def _file_source(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _config_source(entry: object) -> str | None:
    """`chat_template` is a string, or a list of named ones of which `default` is used."""
    if isinstance(entry, list):
        return next((item["template"] for item in entry if item.get("name") == "default"), None)
    return entry if isinstance(entry, str) else None


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Special tokens are strings, or objects with the text in `content`."""
    values = {name: config.get(name) for name in _SPECIAL_TOKENS}
    texts = {name: value["content"] if isinstance(value, dict) else value for name, value in values.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}
