"""The algorithm DDTREE as SGLang's registry knows it."""

import os
from typing import Any

from sglang.srt.managers.overlap_utils import FutureMap
from sglang.srt.speculative.dflash_utils import parse_dflash_draft_config
from sglang.srt.speculative.spec_registry import CustomSpecAlgo
from sglang.srt.utils.hf_transformers_utils import get_config, get_context_length

from ddtree.sglang import limits, prefill
from ddtree.sglang.settings import BACKEND, Settings

NAME = "DDTREE"
_MAX_REQUESTS = 48  # SGLang's own default for block drafters


class DDTreeAlgorithm(CustomSpecAlgo):  # type: ignore[misc]
    """A member of the DFlash family whose target verifies more tokens than its drafter drafts.

    Answering is_dflash has SGLang capture the target's hidden states, size the KV pools for both models and check
    requests as DFlash's. create_future_map, carries_draft_hidden_states and need_topk are called by the scheduler but
    missing in CustomSpecAlgo of 0.5.17 and 0.5.23.
    """

    def is_dflash(self) -> bool:
        return True

    def is_dflash_family(self) -> bool:
        return True

    def supports_target_verify_for_draft(self) -> bool:
        return True

    def need_topk(self) -> bool:
        return False

    def carries_draft_hidden_states(self) -> bool:
        return False

    def create_future_map(
        self,
        device: Any,
        req_to_token_pool: Any,
        needs_cpu_seq_lens: bool = True,
        needs_confidence_relay: bool = False,
    ) -> Any:
        return FutureMap(device, self, req_to_token_pool, needs_cpu_seq_lens, needs_confidence_relay)

    def get_num_tokens_per_req_for_target_verify(self, num_draft_tokens: int, is_draft_worker: bool) -> int:
        if not is_draft_worker:
            return num_draft_tokens
        block = Settings.of(os.environ).block_size
        if block is None:
            raise RuntimeError("DDTREE_BLOCK_SIZE is not set: SGLang's processes lost the plugin's environment")
        return block

    def handle_server_args(self, server_args: Any) -> None:
        """Attribute writes only: 0.5.23 records them. The block size and the context that was asked for go to the other
        processes by environment.
        """
        settings = Settings.of(os.environ)
        refuse(server_args)
        prefill.hand_over(server_args)
        if settings.policy == "auto" and server_args.tp_size != 1:
            raise ValueError("DDTREE_BUDGET=auto needs --tp-size 1: ranks time their steps each for itself")
        block = settings.block_size or _block_size(server_args)
        if settings.chain and settings.budget < block - 1:
            raise ValueError(f"DDTREE_CHAIN needs a budget of at least {block - 1}, the drafter's block less the root")
        os.environ["DDTREE_BLOCK_SIZE"] = str(block)
        if settings.report is not None:
            settings.report.unlink(missing_ok=True)  # an older server's, which nobody may take for ours
        server_args.speculative_num_draft_tokens = settings.width(block)
        _ask_for_room(server_args, settings, settings.width(block))
        server_args.speculative_num_steps = 1
        server_args.speculative_eagle_topk = 1
        server_args.max_running_requests = server_args.max_running_requests or _MAX_REQUESTS


def refuse(server_args: Any) -> None:
    """ValueError, in one line, for what DDTREE cannot do."""
    wanted = {
        "attention_backend": BACKEND,
        "speculative_draft_attention_backend": "triton",
        "grammar_backend": "none",
        "pp_size": 1,
        "dp_size": 1,
        "enable_dp_attention": False,
        "enable_lora": False,
        "enable_mixed_chunk": False,
        "enable_two_batch_overlap": False,
        "enable_unified_memory": False,
        "ep_size": 1,
        "disaggregation_mode": "null",
        "speculative_draft_window_size": None,
    }
    if server_args.decode_attention_backend not in (None, BACKEND):
        raise ValueError(f"DDTREE takes no --decode-attention-backend {server_args.decode_attention_backend!r}")
    for name, value in wanted.items():
        actual = getattr(server_args, name)
        if (actual or None) != (value or None):
            flag = "--" + name.replace("_", "-")
            raise ValueError(f"DDTREE needs {flag} {value!r}, not {actual!r}")
    if server_args.speculative_draft_model_path is None:
        raise ValueError("DDTREE needs --speculative-draft-model-path, the folder of a DFlash drafter")


def _ask_for_room(server_args: Any, settings: Settings, width: int) -> None:
    """--context-length is what requests may use, as without speculation: SGLang is asked for room for a tree more."""
    asked = server_args.context_length
    if asked is None:
        os.environ.pop("DDTREE_CONTEXT", None)
        return
    models = (server_args.model_path, server_args.speculative_draft_model_path)
    positions = min(get_context_length(_config(server_args, path)) for path in models)
    server_args.context_length = limits.with_room(asked, settings.context, positions, width)
    if server_args.context_length != asked or settings.context is None:
        os.environ["DDTREE_CONTEXT"] = str(asked)


def _config(server_args: Any, path: str) -> Any:
    return get_config(path, trust_remote_code=server_args.trust_remote_code)


def _block_size(server_args: Any) -> int:
    path = server_args.speculative_draft_model_path
    config = _config(server_args, path)
    block = parse_dflash_draft_config(draft_hf_config=config).resolve_block_size(default=None)
    if block is None:
        raise ValueError(f"the config of the drafter {path} names no block_size; set DDTREE_BLOCK_SIZE")
    return int(block)
