"""What a server process serves: the loaded model, and what it says it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from engines.reference.decoding.request import Method
from engines.reference.serving.options import Options

if TYPE_CHECKING:
    from engines.reference.serving.chat import ChatTemplate
    from engines.reference.serving.loop import DecodingEngine
    from engines.reference.serving.text import Tokenizer


@dataclass(frozen=True)
class ServedModel:
    """What the HTTP side needs of the model. `block_size` is the drafter's; None without one."""

    tokenizer: Tokenizer
    chat: ChatTemplate | None
    vocab_size: int
    block_size: int | None
    attention_backend: str
    target_digest: str
    drafter_digest: str | None
    settings: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Loaded:
    """What the decode thread loads before it takes requests."""

    engine: DecodingEngine
    model: ServedModel


def identity(options: Options, model: ServedModel, method: Method) -> dict[str, Any]:
    """The fields of `engines.base.Identity`, as JSON."""
    return {
        "engine": "reference",
        "version": version("orchestrate"),
        "method": method.name,
        "budget": method.budget,
        "chain": method.chain,
        "block_size": model.block_size if method.name != "autoregressive" else None,
        "dtype": options.dtype,
        "device": options.device,
        "attention_backend": model.attention_backend,
        "target_digest": model.target_digest,
        "drafter_digest": model.drafter_digest,
        "settings": {
            "threads": options.threads,
            "max_batch": options.max_batch,
            "max_context": options.max_context,
            "max_queue": options.max_queue,
            "prefix_cache": False,
            **model.settings,
        },
    }
