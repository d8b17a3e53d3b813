from pathlib import Path
from typing import Any

from engines.vllm.identity import identity


def config(folder: Path, **parts: Any) -> dict[str, Any]:
    (folder / "config.json").write_text("{}")
    base: dict[str, Any] = {
        "model_config": {"model": str(folder), "dtype": "torch.bfloat16", "max_model_len": 512, "enforce_eager": False},
        "cache_config": {"enable_prefix_caching": False},
        "scheduler_config": {"max_num_seqs": 4},
        "device_config": {"device": "cuda"},
    }
    whole = {name: base.get(name, {}) | parts.get(name, {}) for name in {*base, *parts}}
    return {"vllm_config": whole | {"speculative_config": None}}


def test_flags_are_told_as_the_server_resolved_them(tmp_path: Path) -> None:
    resolved = config(
        tmp_path,
        cache_config={"cache_dtype": "fp8", "gpu_memory_utilization": 0.9},
        scheduler_config={"max_num_batched_tokens": 8192, "enable_chunked_prefill": True},
        model_config={"quantization": None},
        parallel_config={"tensor_parallel_size": 2},
        compilation_config={"cudagraph_mode": [2, 1]},
    )
    told = identity({"version": "0.32.0"}, resolved).settings
    assert (told["kv_cache_dtype"], told["gpu_memory_utilization"]) == ("fp8", 0.9)
    assert (told["max_batched_tokens"], told["chunked_prefill"]) == (8192, True)
    assert (told["quantization"], told["tensor_parallel"], told["cuda_graphs"]) == (None, 2, "[2, 1]")


def test_what_a_version_does_not_tell_is_not_made_up(tmp_path: Path) -> None:
    told = identity({"version": "0.1.0"}, config(tmp_path)).settings
    assert {told[name] for name in ("max_batched_tokens", "kv_cache_dtype", "tensor_parallel", "cuda_graphs")} == {None}
