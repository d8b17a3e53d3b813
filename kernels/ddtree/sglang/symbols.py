"""Everything of SGLang's that the plugin relies on, with the parameters it passes.

`problems` reads SGLang's sources, and so needs neither a GPU nor SGLang's own dependencies. A name that moved or a
parameter that went is found here, before a server starts, and not in a step.
"""

from dataclasses import dataclass

from ddtree.sglang.sources import Sources, members, parameters


@dataclass(frozen=True)
class Symbol:
    """`path`: module:attribute. `takes`: parameters that must exist; `has`: methods, fields or enum members. `since`:
    a module that only newer versions have; without it the symbol is not needed.
    """

    path: str
    takes: tuple[str, ...] = ()
    has: tuple[str, ...] = ()
    since: str = ""


_SPECULATIVE = "sglang.srt.speculative"
_EXTEND = (
    "extend_num_tokens",
    "extend_seq_lens",
    "extend_prefix_lens",
    "extend_start_loc",
    "extend_prefix_lens_cpu",
    "extend_seq_lens_cpu",
    "extend_logprob_start_lens_cpu",
)
_BATCH = (
    "forward_mode",
    "batch_size",
    "input_ids",
    "req_pool_indices",
    "seq_lens",
    "orig_seq_lens",
    "out_cache_loc",
    "seq_lens_sum",
    "seq_lens_cpu",
    "positions",
    "input_embeds",
    "spec_algorithm",
    "spec_info",
    "capture_hidden_mode",
)
_RESULT = (
    "logits_output",
    "next_token_ids",
    "accept_lens",
    "can_run_cuda_graph",
    "next_draft_input",
    "speculative_num_draft_tokens",
    "new_seq_lens",
    "cap_lens",
)

SYMBOLS = (
    Symbol("sglang.srt.plugins:load_plugins"),
    Symbol("sglang.srt.plugins.hook_registry:HookRegistry.register", ("target", "hook", "hook_type")),
    Symbol("sglang.srt.plugins.hook_registry:HookType", has=("AROUND",)),
    Symbol(f"{_SPECULATIVE}.dflash_utils:validate_dflash_request", ("req",)),
    Symbol(f"{_SPECULATIVE}.spec_info:SpeculativeAlgorithm.register", ("name", "supports_overlap", "spec_class")),
    Symbol(f"{_SPECULATIVE}.spec_registry:get_spec", ("name",)),
    Symbol(
        f"{_SPECULATIVE}.spec_registry:CustomSpecAlgo",
        has=(
            "is_dflash",
            "is_dflash_family",
            "supports_target_verify_for_draft",
            "get_num_tokens_per_req_for_target_verify",
            "handle_server_args",
        ),
    ),
    Symbol(
        "sglang.srt.managers.overlap_utils:FutureMap",
        ("device", "spec_algo", "req_to_token_pool", "needs_cpu_seq_lens", "needs_confidence_relay"),
    ),
    Symbol("sglang.srt.server_args:add_attention_backend_choices"),
    Symbol("sglang.srt.layers.attention.attention_registry:register_attention_backend", ("name",)),
    Symbol(
        "sglang.srt.layers.attention.triton_backend:TritonAttnBackend.init_cuda_graph_state",
        ("max_bs", "max_num_tokens", "kv_indices_buf", "cuda_graph_num_kv_splits_buf"),
    ),
    Symbol(
        "sglang.srt.layers.attention.triton_backend:TritonAttnBackend.forward_extend",
        ("q", "k", "v", "layer", "forward_batch", "save_kv_cache"),
    ),
    Symbol(
        "sglang.srt.layers.attention.triton_backend:TritonAttnBackend._update_target_verify_buffers",
        ("spec_info",),
    ),
    Symbol(
        "sglang.srt.layers.attention.triton_backend:TritonAttnBackend._set_kv_buffer",
        ("forward_batch", "layer", "loc_info", "k", "v"),
    ),
    Symbol(
        "sglang.srt.layers.attention.triton_backend:ForwardMetadata", has=("kv_indices", "kv_indptr", "custom_mask")
    ),
    Symbol(
        "sglang.srt.layers.attention.hybrid_attn_backend:HybridAttnBackend",
        ("model_runner", "prefill_backend", "decode_backend"),
    ),
    Symbol("sglang.srt.utils:is_hopper_with_cuda_12_3"),
    Symbol("sglang.srt.utils:is_flashinfer_available"),
    Symbol("sglang.srt.layers.attention.verify_mask:VerifyMask", has=("buffer",)),
    Symbol("sglang.srt.layers.radix_attention:AttentionType", has=("ENCODER_ONLY", "DECODER")),
    Symbol("sglang.srt.mem_cache.memory_pool:KVWriteLoc", has=("loc", "swa_loc")),
    Symbol("sglang.srt.model_executor.forward_batch_info:ForwardBatch", has=(*_BATCH, *_EXTEND)),
    Symbol(
        "sglang.srt.model_executor.forward_batch_info:ForwardBatch",
        has=("global_num_token_non_padded_cpu",),
        since="sglang.srt.mem_cache.kv_index_translator",
    ),
    Symbol("sglang.srt.model_executor.forward_batch_info:ForwardMode", has=("TARGET_VERIFY", "EXTEND")),
    Symbol("sglang.srt.model_executor.forward_batch_info:CaptureHiddenMode", has=("FULL", "NULL")),
    Symbol("sglang.srt.managers.utils:GenerationBatchResult", has=_RESULT),
    Symbol(
        f"{_SPECULATIVE}.dflash_info:DFlashVerifyInput",
        has=("draft_token", "positions", "draft_token_num", "custom_mask", "capture_hidden_mode"),
    ),
    Symbol(f"{_SPECULATIVE}.dflash_utils:parse_dflash_draft_config", ("draft_hf_config",)),
    Symbol(
        f"{_SPECULATIVE}.dflash_utils:apply_dflash_verify_logits_adjustments",
        ("next_token_logits", "sampling_info", "draft_token_num"),
    ),
    Symbol(
        f"{_SPECULATIVE}.dflash_worker_v2:DFlashWorkerV2",
        ("server_args", "gpu_id", "nccl_port", "target_worker"),
        has=("init_attention_backends", "init_cuda_graphs", "_maybe_build_draft_sampler"),
    ),
    Symbol(
        f"{_SPECULATIVE}.dflash_worker_v2:DFlashWorkerV2.forward_batch_generation",
        ("batch", "on_publish"),
    ),
    Symbol(
        f"{_SPECULATIVE}.dflash_worker_v2:DFlashWorkerV2._append_target_hidden_to_draft_kv_by_loc",
        ("target_hidden", "cache_loc", "positions", "cache_loc_2d", "commit_lens"),
    ),
    Symbol(f"{_SPECULATIVE}.draft_worker_common:build_block_pos_offsets", ("length", "device")),
    Symbol(f"{_SPECULATIVE}.draft_worker_common:make_draft_block_spec_info", ("draft_token_num", "device")),
    Symbol(f"{_SPECULATIVE}.draft_worker_common:make_draft_input_v2", ("bonus_tokens", "new_seq_lens")),
    Symbol("sglang.srt.utils.hf_transformers_utils:get_config", ("model", "trust_remote_code")),
    Symbol("sglang.srt.utils.hf_transformers_utils:get_context_length", ("config",)),
    Symbol(
        "sglang.srt.model_executor.runner.decode_cuda_graph_runner:DecodeCudaGraphRunner",
        ("model_runner", "attn_backend", "speculative_num_draft_tokens"),
        has=("can_run_graph",),
    ),
    Symbol(
        f"{_SPECULATIVE}.base_spec_worker:BaseSpecWorker.on_verify_complete_cpu",
        ("num_correct_drafts_per_req", "batch_size"),
    ),
    Symbol(f"{_SPECULATIVE}.dflash_info_v2:DFlashDraftInputV2", has=("bonus_tokens", "new_seq_lens")),
    Symbol("sglang.srt.managers.schedule_batch:ReqKvInfo", has=("kv_allocated_len",)),
    Symbol("sglang.srt.layers.logits_processor:LogitsProcessorOutput", has=("next_token_logits", "hidden_states")),
    Symbol("sglang.srt.model_executor.model_runner:ModelRunnerOutput", has=("logits_output", "can_run_graph")),
    Symbol(
        "sglang.srt.sampling.sampling_batch_info:SamplingBatchInfo",
        has=("temperatures", "top_ps", "top_ks", "min_ps", "is_all_greedy"),
    ),
    Symbol(
        "sglang.srt.mem_cache.kv_index_translator:KVIndexTranslator.bind_own_plan",
        ("forward_batch",),
        since="sglang.srt.mem_cache.kv_index_translator",
    ),
    Symbol("sglang.srt.distributed:get_tp_group"),
    Symbol("sglang.srt.distributed.parallel_state:GroupCoordinator.all_gather_into_tensor"),
)


def problems(sources: Sources) -> list[str]:
    """One line for each symbol that is not as expected; empty where this SGLang fits."""
    return [problem for symbol in SYMBOLS if (problem := _problem(symbol, sources)) is not None]


def _problem(symbol: Symbol, sources: Sources) -> str | None:
    if symbol.since and not sources.exists(symbol.since):
        return None
    module, _, names = symbol.path.partition(":")
    found = sources.find(module, names.split("."))
    if found is None:
        return f"{symbol.path} is missing"
    lacking = [name for name in symbol.takes if name not in parameters(found)]
    if lacking:
        return f"{symbol.path} takes no {', '.join(lacking)}"
    absent = [name for name in symbol.has if name not in members(found)]
    return f"{symbol.path} has no {', '.join(absent)}" if absent else None
