"""What DDTREE cannot serve, found at start-up rather than in a request."""

from typing import Any


def refuse(runner: Any) -> None:
    """ValueError, in one line, for a target whose attention is more than softmax over a dense KV cache."""
    config = runner.model_config
    problems = {
        "multi-head latent attention": runner.use_mla_backend,
        "sliding windows": runner.sliding_window_size is not None and runner.sliding_window_size > 0,
        "hybrid or linear attention": hasattr(runner.token_to_kv_pool, "full_kv_pool")
        or not hasattr(runner.token_to_kv_pool, "k_buffer"),
        "an encoder": config.is_encoder_decoder,
        "a KV cache of another type than the model's": runner.kv_cache_dtype != config.dtype,
        "an added vocabulary": bool(getattr(_shard(runner), "num_added_elements", 0)),
    }
    problems["soft-capped attention logits"] = any(getattr(m, "logit_cap", 0) for m in runner.model.modules())
    found = [name for name, present in problems.items() if present]
    if found:
        raise ValueError(f"DDTREE does not serve targets with {', '.join(found)}: {type(runner.model).__name__}")


def _shard(runner: Any) -> Any:
    head = getattr(runner.model, "lm_head", None)
    if head is None or not hasattr(head, "weight") or not head.weight.is_floating_point():
        raise ValueError(f"DDTREE needs a target with an unquantized lm_head: {type(runner.model).__name__}")
    return getattr(head, "shard_indices", None)
