"""SGLang's Triton attention with tree attention in the two places where a DDTree step needs it."""

from collections.abc import Mapping
from typing import Any

import torch
from sglang.srt.layers.attention.hybrid_attn_backend import HybridAttnBackend
from sglang.srt.layers.attention.triton_backend import TritonAttnBackend
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.mem_cache.memory_pool import KVWriteLoc

from ddtree.attention import tree_attention
from ddtree.mask import sglang_mask
from ddtree.sglang.blocks import block_tree
from ddtree.sglang.trees import Verify, rows_of
from ddtree.tree import Tree

STOCK_MASK_BYTES = 1
"""Of the mask buffer, what SGLang may copy onto itself at each replay; the rest is written in place."""


class DDTreeAttnBackend(TritonAttnBackend):  # type: ignore[misc]
    """Attention of the target. Owns the buffers that its captured verify graph reads.

    Not being named TritonAttnBackend has SGLang capture a custom mask with the graph (`stock`), and leaves the verify
    branch to us (`kernel`).
    """

    def __init__(self, runner: Any, verify: Verify, attention: str) -> None:
        super().__init__(runner)
        self.verify = verify
        self.attention = attention
        self.num_draft_tokens = verify.width

    def init_cuda_graph_state(
        self,
        max_bs: int,
        max_num_tokens: int,
        kv_indices_buf: torch.Tensor | None = None,
        cuda_graph_num_kv_splits_buf: torch.Tensor | None = None,
    ) -> None:
        """As SGLang's, sized by requests: its own buffers grow with requests x nodes, which a tree never reads.

        RuntimeError the second time, as when weights are updated with `recapture_cuda_graph`: the graphs of the lanes
        would go on reading the buffers that this replaces.
        """
        if getattr(self, "cuda_graph_kv_indices", None) is not None:
            raise RuntimeError("DDTREE cannot capture its graphs anew: start the server again for other weights")
        indices = torch.zeros(max_bs * self.req_to_token.shape[1], dtype=torch.int64, device=self.device)
        self.is_draft_runner = self.attention == "kernel"  # for a drafter SGLang allocates no mask
        super().init_cuda_graph_state(max_bs, max_bs, indices, cuda_graph_num_kv_splits_buf)
        self.is_draft_runner = False

    def _update_target_verify_buffers(self, *given: Any) -> Any:
        """Without the mask that SGLang passes at capture, where there is no buffer to copy it to. `given` holds the
        verify input, at a place that differs between versions.
        """
        spec_info = next(value for value in given if hasattr(value, "custom_mask"))
        mask = spec_info.custom_mask
        if self.attention == "kernel":
            spec_info.custom_mask = None
        updated = super()._update_target_verify_buffers(*given)
        spec_info.custom_mask = mask
        return updated

    def stock_mask(self, requests: int, prefix: torch.Tensor, captured: bool) -> torch.Tensor | None:
        """The custom mask of a verify batch, for a graph in the buffer that it reads; None where the kernel reads
        ancestor bits instead.
        """
        if self.attention == "kernel":
            return None
        tree, width = rows_of(self.verify.tree, requests), self.verify.width
        if captured:
            buffer: torch.Tensor = self._verify_mask.buffer.view(torch.uint8)
        else:
            size = requests * width * (self.req_to_token.shape[1] + width)
            buffer = torch.empty(size, dtype=torch.uint8, device=self.device)
        sglang_mask(tree, prefix, out=buffer, fill_prefix=False)
        return buffer[:STOCK_MASK_BYTES] if captured else buffer

    def forward_extend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer: Any,
        forward_batch: Any,
        save_kv_cache: bool = True,
        **kwargs: Any,
    ) -> torch.Tensor:
        if self.attention == "stock" or not forward_batch.forward_mode.is_target_verify():
            out: torch.Tensor = super().forward_extend(q, k, v, layer, forward_batch, save_kv_cache, **kwargs)
            return out
        return attend(self, q, k, v, layer, forward_batch, self.verify.tree, kwargs)


def verifying(backend: Any) -> DDTreeAttnBackend:
    """Ours, of a runner whose prefill may be another's. RuntimeError where there is none."""
    ours = backend.decode_backend if isinstance(backend, HybridAttnBackend) else backend
    if not isinstance(ours, DDTreeAttnBackend):
        raise RuntimeError(f"SGLang wrapped DDTREE's attention in a {type(backend).__name__}")
    return ours


class DDTreeDraftAttnBackend(TritonAttnBackend):  # type: ignore[misc]
    """Attention of the drafter: a block is a tree whose nodes all see each other, or a chain in a causal layer."""

    def __init__(self, runner: Any, block: int, rows: int) -> None:
        super().__init__(runner)
        self.whole = block_tree(rows, block, causal=False, device=self.device)
        self.chain = block_tree(rows, block, causal=True, device=self.device)

    def forward_extend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer: Any,
        forward_batch: Any,
        save_kv_cache: bool = True,
        **kwargs: Any,
    ) -> torch.Tensor:
        if not forward_batch.forward_mode.is_target_verify():
            out: torch.Tensor = super().forward_extend(q, k, v, layer, forward_batch, save_kv_cache, **kwargs)
            return out
        tree = self.whole if layer.attn_type == AttentionType.ENCODER_ONLY else self.chain
        return attend(self, q, k, v, layer, forward_batch, tree, kwargs)


def attend(
    backend: Any,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    layer: Any,
    forward_batch: Any,
    tree: Tree,
    extras: Mapping[str, Any],
) -> torch.Tensor:
    """Write the nodes' KV, then attend to the prefix and to the tree. The slots of the prefix come from kv_indices,
    SGLang's snapshot of them: the live table may change while the graph runs. ValueError for `extras` in use, such as
    attention sinks.
    """
    if used := [name for name, value in extras.items() if value is not None]:
        raise ValueError(f"DDTREE's attention knows no {', '.join(used)}")
    metadata = backend.forward_metadata
    backend._set_kv_buffer(forward_batch, layer, KVWriteLoc(forward_batch.out_cache_loc, None), k, v)
    rows, size, heads, kv_heads = forward_batch.batch_size, layer.qk_head_dim, layer.tp_q_head_num, layer.tp_k_head_num
    pool = backend.token_to_kv_pool
    out = tree_attention(
        q.view(rows, -1, heads, size),
        k.view(rows, -1, kv_heads, size),
        v.view(rows, -1, kv_heads, size),
        pool.get_key_buffer(layer.layer_id),
        pool.get_value_buffer(layer.layer_id),
        metadata.kv_indices,
        forward_batch.seq_lens,
        rows_of(tree, rows),
        rows=metadata.kv_indptr[:rows],
        scale=layer.scaling,
        window=layer.sliding_window_size + 1 if layer.sliding_window_size > 0 else None,
        longest=backend.max_context_len,
    )
    return out.view(-1, heads * size)
