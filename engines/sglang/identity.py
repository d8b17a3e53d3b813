"""Who an SGLang server says it is: its resolved arguments, from /server_info, and our plugin's report.

SGLang knows no digests, so those are taken, where it runs, of the folders that the server says it loaded. What cannot
be asked for over HTTP is in the settings as `not_proved`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engines import places
from engines.base import EngineError, Identity, IdentityError, Method, Place
from engines.sglang import report
from engines.sglang.report import Report

NOT_PROVED = "that the weights in memory are the folder's; that every step replayed a captured graph"
_METHODS = {None: Method.AUTOREGRESSIVE, "DFLASH": Method.DFLASH, "DDTREE": Method.DDTREE}
_DUMMY = "dummy"

Json = Mapping[str, Any]
Settings = dict[str, str | int | float | bool | None]


def identity(info: Json, port: int, place: Place | None = None) -> Identity:
    """Of the server on that port of this machine, or at that place. EngineError when its words do not hold what an
    identity needs."""
    try:
        method = _method(info)
        found = _report(info, port, place) if method is Method.DDTREE else None
        if found is not None:
            _check_width(info, found)
        return Identity(
            engine="sglang",
            version=str(info["version"]),
            method=method,
            budget=found.budget if found else None,
            chain=found.chain if found else False,
            block_size=found.block_size if found else _block_size(info),
            dtype=str(info["dtype"]),
            device=str(info["device"]),
            attention_backend=str(info["attention_backend"]),
            target_digest=_folder_digest(info["model_path"], info["load_format"], place),
            drafter_digest=_drafter_digest(info, place),
            settings=_settings(info) | (_plugin_settings(found) if found else {}),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EngineError(f"SGLang's identity cannot be read ({type(error).__name__}: {error!s:.100})") from error


def speculative(info: Json) -> bool:
    """Whether the server of this /server_info drafts."""
    return _method(info) is not Method.AUTOREGRESSIVE


def _method(info: Json) -> Method:
    name = info.get("speculative_algorithm", "not told")
    if name not in _METHODS:
        raise EngineError(f"the server decodes by {name!r}, which is no method of an arm of engine sglang")
    return _METHODS[name]


def _block_size(info: Json) -> int | None:
    """Tokens that a step verifies: the drafted ones and the last accepted one."""
    width = info["speculative_num_draft_tokens"]
    return None if width is None else int(width)


def _check_width(info: Json, found: Report) -> None:
    """SGLang's own width and the plugin's word must be one: the widest tree with its root, and a block at least."""
    width, expected = info["speculative_num_draft_tokens"], max(found.budget + 1, found.block_size)
    if width != expected:
        raise IdentityError(f"SGLang verifies {width} tokens a step, the ddtree plugin says {expected}")


def _report(info: Json, port: int, place: Place | None) -> Report:
    return report.read(port) if place is None else report.served(place, info["model_path"])


def _drafter_digest(info: Json, place: Place | None) -> str | None:
    if not speculative(info):
        return None
    own = info["speculative_draft_load_format"]
    return _folder_digest(info["speculative_draft_model_path"], own or info["load_format"], place)


def _folder_digest(model: str, load_format: str, place: Place | None) -> str:
    if load_format == _DUMMY:
        raise IdentityError(f"the server made up the weights of {model} (load format dummy)")
    return places.digest(place, model)


def _settings(info: Json) -> Settings:
    graphs = (info["cuda_graph_config"] or {}).get("decode") or {}
    settings: Settings = {
        "attention_backend": info["attention_backend"],
        "prefill_attention_backend": info["prefill_attention_backend"] or info["attention_backend"],
        "sampling_backend": info["sampling_backend"],
        "radix_cache": not info["disable_radix_cache"],
        "overlap": not info["disable_overlap_schedule"],
        "cuda_graphs": graphs.get("backend"),
        "page_size": info["page_size"],
        "max_context": info["context_length"],
        "max_batch": info["max_running_requests"],
        "min_free_slots_delay": info["min_free_slots_delay"],
        "kv_tokens": info["max_total_num_tokens"],
        "mem_fraction_static": info["mem_fraction_static"],
        "kv_cache_dtype": info["kv_cache_dtype"],
        "quantization": info["quantization"],
        "tensor_parallel": info["tp_size"],
        "not_proved": NOT_PROVED,
    }
    if speculative(info):
        settings["draft_attention_backend"] = info["speculative_draft_attention_backend"]
        settings["block_size"] = _block_size(info)
    return settings


def _plugin_settings(found: Report) -> Settings:
    return {
        "plugin": found.version,
        "attention": found.attention,
        "policy": found.policy,
        "widths": " ".join(map(str, found.widths)),
        "max_context": found.context,
        "topk": found.topk,
        "block_size": found.block_size,
    }
