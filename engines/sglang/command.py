"""How SGLang's server is started."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from engines.base import Arm, Deployment, EngineError, Method
from engines.sglang import report, speculation
from engines.sglang.software import Software

MODEL = "target"
_SIMULATION = "SGLANG_SIMULATE_ACC"
_ELSEWHERE = ("--config", "--attention-backend", "--prefill-attention-backend", "--decode-attention-backend")
"""Flags by which a profile could undo what an arm says without naming the arm's own flags."""


def command(
    arm: Arm,
    deployment: Deployment,
    port: int,
    host: str = "127.0.0.1",
    told: Path | None = None,
    rendezvous: int | None = None,
) -> list[str]:
    """The argument list. The method is part of it: each arm has a process of its own. `told`: where our plugin leaves
    its report, by default where a sweep looks for it. `rendezvous`: the port at which its processes meet; without it
    SGLang takes one of the kernel's for outgoing connections, which may be gone when it is used.

    EngineError for a deployment that cannot run the arm, or whose arguments say what the arm says.
    """
    own = [*_arguments(arm, deployment), "--host", host, "--port", str(port)]
    own += ["--nccl-port", str(rendezvous)] if rendezvous is not None else []
    software = Software.parse(deployment.software)
    if deployment.device != "cuda":
        raise EngineError(f"SGLang {software.version} cannot run on device {deployment.device}: it needs cuda")
    if arm.method is Method.DDTREE and not software.plugin:
        raise EngineError(
            f"the SGLang of {deployment.interpreter} has no ddtree plugin: install this project's kernels folder "
            "(ddtree-kernels) into its environment"
        )
    _check_arguments(own, deployment.arguments)
    prefix = ["env", f"{report.VARIABLE}={told or report.path(port)}"] if arm.method is Method.DDTREE else []
    return [*prefix, deployment.interpreter, "-m", "sglang.launch_server", *own, *deployment.arguments]


def rendezvous(deployment: Deployment, port: int) -> int | None:
    """The port, but for data parallelism: there SGLang has a store for each replica, and one port is not enough."""
    several = any(word.startswith(("--dp", "--data")) for word in deployment.arguments)
    return None if several else port


def _arguments(arm: Arm, deployment: Deployment) -> list[str]:
    """Everything but the method, its attention and the arm's options is the same for every arm of a deployment."""
    line = ["--model-path", deployment.target, "--served-model-name", MODEL, "--dtype", deployment.dtype]
    line += ["--context-length", str(deployment.max_context), "--max-running-requests", str(deployment.max_batch)]
    line += ["--cuda-graph-max-bs-decode", str(deployment.max_batch), "--random-seed", "0"]
    line += ["--sampling-backend", "pytorch", "--grammar-backend", "none"]
    line += [] if arm.options.get("radix_cache") else ["--disable-radix-cache"]
    line += speculation.flags(arm, deployment)
    return [*line, "--incremental-streaming-output", "--enable-metrics", "--log-level-http", "warning"]


def _check_arguments(own: list[str], given: tuple[str, ...]) -> None:
    """The last one of two flags would win, and SGLang takes a flag's beginning for the flag."""
    flags = [*_ELSEWHERE, *(word for word in own if word.startswith("--"))]
    for word in given:
        name = word.partition("=")[0]
        if not name.startswith("--"):
            continue
        if name.startswith("--spec") or any(flag.startswith(name) for flag in flags):
            raise EngineError(f"argument {name} of engine sglang is the arm's or the adapter's to set; remove it")


def environment(arm: Arm, deployment: Deployment) -> Mapping[str, str]:
    """Variables of the server; those that are the arm come after the profile's own.

    SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION: else /health takes a second, for a token that it generates.
    """
    for name in sorted(deployment.environment):
        if name.startswith(_SIMULATION):
            raise EngineError(f"variable {name} makes SGLang invent acceptance; remove it")
        if name.startswith("DDTREE_"):
            raise EngineError(f"variable {name} is the arm's to set, by an option; remove it")
    variables = {
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",
    }
    return variables | dict(deployment.environment) | speculation.variables(arm) | {f"{_SIMULATION}_LEN": "-1"}
