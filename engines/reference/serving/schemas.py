"""Request bodies: OpenAI's fields, the extensions this server knows, and a refusal of everything else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from engines.reference.decoding.request import MethodName, SamplingParams

_IGNORED = frozenset({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"})
_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "top_logprobs": (0,),
    "logprobs": (False,),
}
"""Fields of OpenAI's API that this server cannot honour: only the values that change nothing are taken, or null."""

TokenId = Annotated[int, Field(ge=0)]
StopString = Annotated[str, Field(min_length=1, max_length=512)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class StreamOptions(Body):
    include_usage: bool = False


class Generation(Body):
    """What both endpoints take."""

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    stop: StopString | Annotated[list[StopString], Field(max_length=16)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=64)] | None = None
    ignore_eos: bool = False
    return_token_ids: bool = False

    @model_validator(mode="before")
    @classmethod
    def _drop_what_changes_nothing(cls, body: object) -> object:
        if not isinstance(body, dict):
            return body
        return {name: value for name, value in body.items() if not cls._without_effect(name, value)}

    @classmethod
    def _without_effect(cls, name: str, value: object) -> bool:
        if name in _IGNORED:
            return True
        if name in cls.model_fields or name not in _NEUTRAL:
            return False
        if value is None or any(value == neutral and type(value) in _kinds(neutral) for neutral in _NEUTRAL[name]):
            return True
        raise ValueError(f"`{name}` is not supported by this server; leave it out")

    @model_validator(mode="after")
    def _stream_options_go_with_stream(self) -> Generation:
        if self.stream_options is not None and not self.stream:
            raise ValueError("`stream_options` is only allowed with `stream: true`")
        return self

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def stop_strings(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    def sampling(self, max_tokens: int, default_seed: int, logprobs: int | None) -> SamplingParams:
        """OpenAI's defaults where the body is silent: temperature 1, nothing filtered."""
        return SamplingParams(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=self.top_k or 0,
            min_p=self.min_p or 0.0,
            seed=default_seed if self.seed is None else self.seed,
            max_tokens=max_tokens,
            stop_token_ids=tuple(self.stop_token_ids or ()),
            ignore_eos=self.ignore_eos,
            logprobs=logprobs,
        )


class CompletionBody(Generation):
    """POST /v1/completions. `prompt` is one text, or one list of token ids (taken as they are)."""

    prompt: Annotated[str, Field(min_length=1)] | Annotated[list[TokenId], Field(min_length=1)]
    logprobs: Annotated[int, Field(ge=1, le=20)] | None = None


class TextPart(Body):
    type: Literal["text"]
    text: str


class Message(Body):
    role: Literal["system", "user", "assistant"]
    content: str | list[TextPart]

    def plain(self) -> dict[str, str]:
        """The message as chat templates expect it."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": self.role, "content": text}


class ChatBody(Generation):
    """POST /v1/chat/completions. `chat_template_kwargs` are variables for the model's chat template."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    chat_template_kwargs: dict[str, bool | int | float | str] = {}

    @property
    def limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens


class ConfigureBody(Body):
    """POST /configure."""

    method: MethodName
    budget: int | None = None
    chain: bool = False


class DraftTreesBody(Body):
    """POST /draft_trees."""

    prompt: Annotated[list[TokenId], Field(min_length=1)]
    steps: Annotated[int, Field(ge=1, le=64)]


def _kinds(neutral: Any) -> tuple[type, ...]:
    """Types that may stand for a neutral value: 1 and 1.0 are the same, 1 and true are not."""
    return (int, float) if type(neutral) is int else (type(neutral),)
