"""Which attention prefills, behind SGLang's HybridAttnBackend.

Only where a tree is verified has ours anything to give. Triton's extend kernel, which it inherits, takes longer for a
prompt than what stock SGLang takes by itself.
"""

from typing import Any

from sglang.srt.utils import is_flashinfer_available, is_hopper_with_cuda_12_3

from ddtree.sglang.settings import BACKEND, PREFILL

_WIDE = ("float", "float32")
"""A type that neither FlashAttention 3 nor flashinfer computes in."""


def hand_over(server_args: Any) -> None:
    """Name the backend that prefills, unless the user named one, and have ours verify, whatever
    --speculative-attention-mode says. ValueError for one that our KV cache does not suit.
    """
    if server_args.prefill_attention_backend is None:
        server_args.prefill_attention_backend = BACKEND if server_args.dtype in _WIDE else _usual()
    elif server_args.prefill_attention_backend not in PREFILL:
        raise ValueError(
            f"DDTREE prefills with {', '.join(PREFILL)}, not --prefill-attention-backend "
            f"{server_args.prefill_attention_backend!r}"
        )
    server_args.speculative_attention_mode = "decode"


def _usual() -> str:
    """What SGLang takes by itself, but for cards where that stores the cache otherwise (B200)."""
    if is_hopper_with_cuda_12_3():
        return "fa3"
    return "flashinfer" if is_flashinfer_available() else BACKEND
