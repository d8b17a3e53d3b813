"""From an arm to vLLM's --speculative-config."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from engines.base import Arm, Deployment, EngineError, Method

Value = str | int | float | bool

OPTIONS: Mapping[Method, Mapping[str, type]] = {
    Method.AUTOREGRESSIVE: {},
    Method.NGRAM: {"draft_tokens": int, "prompt_lookup_max": int, "prompt_lookup_min": int},
    Method.EAGLE3: {"draft_tokens": int, "attention_backend": str},
    Method.DFLASH: {"draft_tokens": int, "attention_backend": str, "repaired": bool},
}
"""The options an arm may have. `attention_backend` is the drafter's; `repaired`: see engines.vllm.repair."""

_KINDS = {int: "a positive integer", str: "a text", bool: "true or false"}

_DEFAULTS: Mapping[Method, Mapping[str, Value]] = {
    Method.NGRAM: {"draft_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2},
    Method.EAGLE3: {"draft_tokens": 3},
}


def check(arm: Arm) -> None:
    """Raise EngineError for a method or an option that vLLM does not have."""
    if arm.method is Method.DDTREE:
        raise EngineError(
            "engine vllm has no ddtree: vLLM verifies chains only (its tree attention was removed, vllm#42121); "
            "use engine reference"
        )
    if arm.method not in OPTIONS:
        raise EngineError(f"engine vllm has no method {arm.method}; it has {', '.join(sorted(OPTIONS))}")
    allowed = OPTIONS[arm.method]
    for name, value in arm.options.items():
        if name not in allowed:
            known = ", ".join(sorted(allowed)) or "none"
            raise EngineError(f"engine vllm has no option {name!r} for {arm.method}; it has {known}")
        if type(value) is not allowed[name] or (type(value) is int and value < 1):
            raise EngineError(f"option {name!r} of engine vllm must be {_KINDS[allowed[name]]}, got {value!r}")


def repaired(arm: Arm) -> bool:
    """Whether the arm asks for vLLM's CPU defect to be mended."""
    return arm.options.get("repaired") is True


def config(arm: Arm, deployment: Deployment) -> dict[str, Value] | None:
    """The value of --speculative-config; None for plain decoding. EngineError without the drafter it needs."""
    if not arm.speculative:
        return None
    options: dict[str, Value] = dict(_DEFAULTS.get(arm.method, {})) | dict(arm.options)
    options.pop("repaired", None)
    settings: dict[str, Value] = {"method": arm.method.value}
    if arm.method is not Method.NGRAM:
        if deployment.drafter is None:
            raise EngineError(f"arm {arm.name!r} needs a drafter: set `models.drafter` in the profile")
        settings["model"] = deployment.drafter
    if arm.method is Method.DFLASH and "draft_tokens" not in options:
        options["draft_tokens"] = _block_size(Path(str(deployment.drafter))) - 1
    settings["num_speculative_tokens"] = options.pop("draft_tokens")
    return settings | options


def _block_size(drafter: Path) -> int:
    """Tokens of a DFlash block: the last accepted token and the masks behind it."""
    file = drafter / "config.json"
    try:
        return int(json.loads(file.read_text(encoding="utf-8"))["block_size"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EngineError(
            f"{file}: no block_size, so the arm must set the option draft_tokens ({type(error).__name__})"
        ) from error
