"""From an arm to SGLang's speculative flags, and to the variables that our plugin reads (a plugin cannot add flags)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engines.base import Arm, Deployment, EngineError, Method

DDTREE_BACKEND = "ddtree"
"""The attention backend that our plugin registers."""
PLUGIN = "ddtree"
DRAFT_BACKEND = "triton"
"""What a tree's command line names for the drafter: SGLang takes no name of ours there, and our plugin puts its own
backend in its place.
"""
_NO_PLUGIN = "none"
"""The list of plugins to load. An empty list would load all that are installed."""


@dataclass(frozen=True)
class Choice:
    """An option that is one of a few words."""

    words: tuple[str, ...]


Kind = type[int] | type[str] | type[bool] | Choice

OPTIONS: Mapping[Method, Mapping[str, Kind]] = {
    Method.AUTOREGRESSIVE: {"radix_cache": bool, "attention_backend": str},
    Method.DFLASH: {"radix_cache": bool, "attention_backend": str, "block_size": int},
    Method.DDTREE: {
        "radix_cache": bool,
        "policy": Choice(("fixed", "auto")),
        "attention": Choice(("kernel", "stock")),
        "prefill_attention_backend": Choice(("ddtree", "fa3", "flashinfer", "triton")),
        "block_size": int,
        "topk": int,
    },
}
"""The options an arm may have. `policy: auto` takes the arm's budget for the widest of the widths it chooses among."""


def check(arm: Arm) -> None:
    """Raise EngineError for a method or an option that the engine does not have."""
    if arm.method not in OPTIONS:
        raise EngineError(f"engine sglang has no method {arm.method}; it has {', '.join(sorted(OPTIONS))}")
    if (arm.budget is not None) != (arm.method is Method.DDTREE):
        raise EngineError("`budget` is required for method ddtree and not allowed for any other")
    if arm.chain and _automatic(arm):
        raise EngineError("`chain` is one fixed shape: it cannot go with the option policy: auto")
    allowed = OPTIONS[arm.method]
    for name, value in arm.options.items():
        if name not in allowed:
            raise EngineError(
                f"engine sglang has no option {name!r} for {arm.method}; it has {', '.join(sorted(allowed))}"
            )
        _check_value(name, value, allowed[name])


def _check_value(name: str, value: object, kind: Kind) -> None:
    if isinstance(kind, Choice):
        good, allowed = value in kind.words, " or ".join(kind.words)
    else:
        good = type(value) is kind and (kind is not int or int(str(value)) > 0)
        allowed = {int: "a positive integer", str: "a text", bool: "true or false"}[kind]
    if not good:
        raise EngineError(f"option {name!r} of engine sglang must be {allowed}, got {value!r}")


def flags(arm: Arm, deployment: Deployment) -> list[str]:
    """Attention and speculation. EngineError without the drafter that the arm needs.

    A stock arm's attention is what SGLang takes on that GPU, which is what would run in production without us, unless
    an option names another. So is a tree's in prefill, by our plugin's choice.
    """
    tree = arm.method is Method.DDTREE
    backend = DDTREE_BACKEND if tree else arm.options.get("attention_backend")
    line = ["--attention-backend", str(backend)] if backend else []
    if prefill := arm.options.get("prefill_attention_backend"):
        line += ["--prefill-attention-backend", str(prefill)]
    if not arm.speculative:
        return line
    if deployment.drafter is None:
        raise EngineError(f"arm {arm.name!r} needs a drafter: set `models.drafter` in the profile")
    line += ["--speculative-algorithm", arm.method.value.upper()]
    line += ["--speculative-draft-model-path", deployment.drafter]
    line += ["--speculative-draft-attention-backend", DRAFT_BACKEND if tree else str(backend)] if backend else []
    if not tree and "block_size" in arm.options:
        line += ["--speculative-dflash-block-size", str(arm.options["block_size"])]
    return line


def variables(arm: Arm) -> dict[str, str]:
    """Which plugins load, and what ours is told; an empty one is its own choice, whatever is inherited."""
    if arm.method is not Method.DDTREE:
        return {"SGLANG_PLUGINS": _NO_PLUGIN}
    told = {
        "SGLANG_PLUGINS": PLUGIN,
        "DDTREE_BUDGET": "auto" if _automatic(arm) else str(arm.budget),
        "DDTREE_CHAIN": str(int(arm.chain)),
        "DDTREE_ATTENTION": str(arm.options.get("attention", "kernel")),
        "DDTREE_BLOCK_SIZE": str(arm.options.get("block_size", "")),
        "DDTREE_TOPK": str(arm.options.get("topk", "")),
        "DDTREE_LADDER": "",
        "DDTREE_CONTEXT": "",
    }
    return told | ({"DDTREE_MAX_BUDGET": str(arm.budget)} if _automatic(arm) else {})


def _automatic(arm: Arm) -> bool:
    return arm.options.get("policy") == "auto"
