"""What DDTREE cannot serve, found at start-up rather than in a request."""

import logging
from typing import Any

logger = logging.getLogger(__name__)


def refuse(runner: Any) -> None:
    """ValueError, in one line, for a target whose attention is more than softmax over a dense KV cache."""
    config = runner.model_config
    problems = {
        "multi-head latent attention": runner.use_mla_backend,
        "sliding windows": runner.sliding_window_size is not None and runner.sliding_window_size > 0,
        "hybrid or linear attention": hasattr(runner.token_to_kv_pool, "full_kv_pool")
        or not hasattr(runner.token_to_kv_pool, "k_buffer"),
        "an encoder": config.is_encoder_decoder,
        "a KV cache sized after the graphs": getattr(runner.token_to_kv_pool, "post_capture_active", False),
        "a KV cache of another type than the model's": runner.kv_cache_dtype != config.dtype,
        "an added vocabulary": bool(getattr(_shard(runner), "num_added_elements", 0)),
    }
    problems["soft-capped attention logits"] = any(getattr(m, "logit_cap", 0) for m in runner.model.modules())
    found = [name for name, present in problems.items() if present]
    if found:
        raise ValueError(f"DDTREE does not serve targets with {', '.join(found)}: {type(runner.model).__name__}")


def refuse_drafter(worker: Any) -> None:
    """ValueError for a drafter of SGLang 0.5.23 whose own head or scaled inputs the tree's drafting would leave out."""
    problems = {
        "a candidate selector": getattr(worker, "selector", None) is not None,
        "a LiLiCorr head": getattr(worker, "lilicorr", None) is not None,
        "a Domino head": getattr(worker, "_is_domino", False),
        "scaled embeddings": getattr(worker, "_noise_embed_scale", 1.0) != 1.0,
        "embeddings of its own": getattr(worker.draft_model, "is_nemotron_35_draft", False),
    }
    found = [name for name, present in problems.items() if present]
    if found:
        raise ValueError(f"DDTREE does not serve drafters with {', '.join(found)}: {type(worker.draft_model).__name__}")


def with_room(asked: int, served: int | None, positions: int, width: int) -> int:
    """The context to ask SGLang for, so that `asked` tokens can be served and a tree of `width` still fits after them;
    never more than the models have positions. `served`: what a call before this one, in this process or in the one
    that started it, was asked for: its answer comes back as `asked`.
    """
    if served is not None and asked == max(served, min(served + width, positions)):
        return asked
    return max(asked, min(asked + width, positions))


def serve_context(runner: Any, width: int, wanted: int | None) -> int:
    """Lower the model's context to what was asked for, or to what a row of req_to_token holds together with what
    SGLang reserves after it. Returns it.

    The reserve is two trees, in whole pages. With pages of 1 the rows have room for one tree only, so that a request in
    the last `width` tokens of the context would write into the next one's row. The scheduler reads the limit later.
    """
    config, table = runner.model_config, runner.req_to_token_pool.req_to_token
    longest = int(table.shape[1]) - 2 * width - (runner.page_size - 1)
    if longest < 2:
        raise ValueError(f"DDTREE needs a context of more than {width} tokens at this budget, not {config.context_len}")
    wanted = wanted or int(config.context_len)
    if longest < wanted:
        logger.warning("DDTREE serves %d tokens of the context of %d", longest, wanted)
    config.context_len = min(longest, wanted)
    return int(config.context_len)


def _shard(runner: Any) -> Any:
    head = getattr(runner.model, "lm_head", None)
    if head is None or not hasattr(head, "weight") or not head.weight.is_floating_point():
        raise ValueError(f"DDTREE needs a target with an unquantized lm_head: {type(runner.model).__name__}")
    return getattr(head, "shard_indices", None)
