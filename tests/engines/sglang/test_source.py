"""Every name that the adapter relies on, in SGLang's own source: folders named by SGLANG_SOURCES, as wheels unpack.

SGLANG_SOURCES=wheel-0.5.17:wheel-0.5.23 pytest tests/engines/sglang/test_source.py
"""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from engines.base import Method
from engines.sglang.adapter import SglangEngine
from tests.engines.sglang.acting import arm, deployment, tree

SOURCES = [Path(folder) for folder in os.environ.get("SGLANG_SOURCES", "").split(os.pathsep) if folder]

pytestmark = pytest.mark.skipif(not SOURCES, reason="SGLANG_SOURCES names no unpacked SGLang")

ARMS = [arm(Method.AUTOREGRESSIVE), arm(Method.DFLASH, block_size=4), tree()]
INFO = {
    "attention_backend",
    "context_length",
    "cuda_graph_config",
    "device",
    "disable_overlap_schedule",
    "disable_radix_cache",
    "dtype",
    "kv_cache_dtype",
    "load_format",
    "max_running_requests",
    "mem_fraction_static",
    "min_free_slots_delay",
    "model_path",
    "page_size",
    "prefill_attention_backend",
    "quantization",
    "sampling_backend",
    "speculative_algorithm",
    "speculative_draft_attention_backend",
    "speculative_draft_load_format",
    "speculative_draft_model_path",
    "speculative_num_draft_tokens",
    "tp_size",
}
NAMES = {
    "srt/entrypoints/http_server.py": [
        '"/server_info"',
        '"/flush_cache"',
        '"/freeze_gc"',
        '"/v1/tokenize"',
        '"/generate"',
        '"version"',
    ],
    "srt/managers/tokenizer_manager.py": [
        '"spec_verify_ct"',
        '"spec_num_correct_drafts"',
        '"spec_num_proposed_drafts"',
        '"spec_correct_drafts_histogram"',
        '"spec_cap_lens_histogram"',
        '"output_top_logprobs"',
        '"finish_reason"',
        '"completion_tokens"',
        '"cached_tokens"',
    ],
    "srt/managers/scheduler.py": ['"max_total_num_tokens"', "Scheduler hit an exception: "],
    "srt/observability/metrics_collector.py": [
        '"sglang:generation_tokens_total"',
        '"sglang:num_requests_total"',
        '"sglang:spec_verify_calls_total"',
    ],
    "srt/plugins/__init__.py": ["sglang.srt.plugins", "Failed to load plugin ", "Failed to execute general plugin: "],
    "srt/speculative/spec_info.py": ["Unknown speculative algorithm name: "],
    "srt/environ.py": ["SGLANG_PLUGINS", "SGLANG_SIMULATE_ACC_LEN", "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"],
}
SAMPLING = ["max_new_tokens", "temperature", "top_p", "top_k", "sampling_seed", "ignore_eos"]


def text(source: Path, name: str) -> str:
    """A module, or where it was made a package all of that."""
    path = source / "sglang" / name
    if path.exists():
        return path.read_text()
    return "".join(part.read_text() for part in sorted(path.with_suffix("").rglob("*.py")))


def arguments(source: Path) -> set[str]:
    """The fields of SGLang's server arguments, each of which is a flag and a key of /server_info."""
    root = source / "sglang" / "srt"
    modules = [root / "server_args.py", *sorted((root / "arg_groups" / "fields").glob("*.py"))]
    nodes = [node for module in modules for node in ast.walk(ast.parse(module.read_text()))]
    return {n.target.id for n in nodes if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_every_flag_and_every_key_exists(source: Path) -> None:
    commands = [SglangEngine().command(subject, deployment(), 1) for subject in ARMS]
    flags = {word.removeprefix("--").replace("-", "_") for line in commands for word in line if word.startswith("--")}
    assert len(flags) > 15
    assert flags | INFO <= arguments(source)


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_every_name_is_spelled_as_it_was(source: Path) -> None:
    missing = [
        f"{module}: {name}" for module, names in NAMES.items() for name in names if name not in text(source, module)
    ]
    assert missing == []
    sampling = text(source, "srt/sampling/sampling_params.py")
    assert [name for name in SAMPLING if name not in sampling] == []
