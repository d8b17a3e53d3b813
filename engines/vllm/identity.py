"""Who a vLLM server says it is: /version and the configuration it holds, from /server_info.

vLLM knows no digests, so those are taken, where it runs, of the folders that the server says it loaded. What cannot
be asked for over HTTP is in the settings as `not_proved`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engines import places
from engines.base import EngineError, Identity, Method, Place

NOT_PROVED = "that the weights in memory are the folder's; the attention kernel in use"
CPU_DFLASH_DEFECT = (
    "drafts are worse than the drafter's: vLLM's CPU rms_norm ignores a weight for each layer (vllm#46761), so the "
    "context keys of all draft layers but the first are scaled wrongly; texts are right; seen in 0.32.0; the server "
    "does not tell whether the arm's option `repaired` mends it, its log does"
)
_METHODS = {"ngram_gpu": Method.NGRAM}
"""vLLM's names for a method where they differ from ours."""

_RESOLVED = {
    "max_batched_tokens": ("scheduler_config", "max_num_batched_tokens"),
    "chunked_prefill": ("scheduler_config", "enable_chunked_prefill"),
    "kv_cache_dtype": ("cache_config", "cache_dtype"),
    "gpu_memory_utilization": ("cache_config", "gpu_memory_utilization"),
    "quantization": ("model_config", "quantization"),
    "tensor_parallel": ("parallel_config", "tensor_parallel_size"),
    "cuda_graphs": ("compilation_config", "cudagraph_mode"),
}
"""What vLLM makes of its flags and defaults: None where a version does not tell."""

Json = Mapping[str, Any]


def identity(version: Json, info: Json, place: Place | None = None) -> Identity:
    """Of a server at that place, this machine for None. EngineError when the answers do not hold what it needs."""
    try:
        config = info["vllm_config"]
        if not isinstance(config, dict):
            raise EngineError("vLLM's /server_info is text: this version cannot give it as JSON")
        drafts = config["speculative_config"]
        return Identity(
            engine="vllm",
            version=str(version["version"]),
            method=_method(drafts),
            budget=None,
            chain=False,
            block_size=_block_size(drafts),
            dtype=_short(config["model_config"]["dtype"]),
            device=str(config["device_config"]["device"]),
            attention_backend=str((config.get("attention_config") or {}).get("backend") or "not told"),
            target_digest=places.digest(place, config["model_config"]["model"]),
            drafter_digest=_drafter_digest(drafts, place),
            settings=_settings(config, drafts),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EngineError(f"vLLM's identity cannot be read ({type(error).__name__}: {error!s:.100})") from error


def _method(drafts: Json | None) -> Method:
    if drafts is None:
        return Method.AUTOREGRESSIVE
    name = drafts["method"]
    return _METHODS.get(name) or Method(name)


def _block_size(drafts: Json | None) -> int | None:
    """Tokens that a step verifies: the drafted ones and the last accepted one."""
    return None if drafts is None else int(drafts["num_speculative_tokens"]) + 1


def _drafter_digest(drafts: Json | None, place: Place | None) -> str | None:
    """The drafter's, where the method has one (vLLM puts the method's name in its place for n-grams)."""
    if drafts is None or _method(drafts) is Method.NGRAM:
        return None
    return places.digest(place, drafts["model"])


def _short(name: object) -> str:
    return str(name).removeprefix("torch.")


def _settings(config: Json, drafts: Json | None) -> dict[str, str | int | float | bool | None]:
    scheduler, cache = config["scheduler_config"], config["cache_config"]
    settings: dict[str, str | int | float | bool | None] = {
        "max_context": config["model_config"]["max_model_len"],
        "max_batch": scheduler["max_num_seqs"],
        "prefix_cache": cache["enable_prefix_caching"],
        "enforce_eager": config["model_config"]["enforce_eager"],
        "async_scheduling": scheduler.get("async_scheduling"),
        "not_proved": NOT_PROVED,
    }
    settings |= {name: _plain((config.get(part) or {}).get(field)) for name, (part, field) in _RESOLVED.items()}
    if drafts is not None:
        if _method(drafts) is Method.DFLASH and config["device_config"]["device"] == "cpu":
            settings["defect"] = CPU_DFLASH_DEFECT
        settings["rejection_sample_method"] = drafts.get("rejection_sample_method")
        if _method(drafts) is Method.NGRAM:
            settings |= {name: drafts[name] for name in ("prompt_lookup_max", "prompt_lookup_min")}
    return settings


def _plain(value: Any) -> str | int | float | bool | None:
    return value if value is None or isinstance(value, (str, int, float)) else str(value)
