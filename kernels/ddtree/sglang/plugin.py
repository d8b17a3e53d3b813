"""The entry point: run once in each of SGLang's processes, before its arguments are read."""

import logging
import os
import sys

from ddtree.sglang import hooks, symbols
from ddtree.sglang.settings import BACKEND, Settings
from ddtree.sglang.sources import Sources

logger = logging.getLogger(__name__)


def activate() -> None:
    """Register DDTREE and its attention backend.

    SGLang only logs what a plugin raises, and the user then reads of an unknown algorithm. So where DDTREE was asked
    for and cannot be had, the process ends here and says why.
    """
    problems = symbols.problems(Sources.installed("sglang"))
    if not problems:
        _register()
    elif _wanted():
        raise SystemExit("ddtree: this SGLang does not fit: " + "; ".join(problems))
    else:
        logger.warning("ddtree is not registered: %s", "; ".join(problems))


def _wanted() -> bool:
    return any(word.upper().endswith("DDTREE") for word in sys.argv) or "DDTREE_BUDGET" in os.environ


def _register() -> None:
    from sglang.srt.layers.attention.attention_registry import register_attention_backend
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    from sglang.srt.server_args import add_attention_backend_choices
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
    from sglang.srt.speculative.spec_registry import get_spec

    from ddtree.sglang.algorithm import NAME, DDTreeAlgorithm

    if get_spec(NAME) is not None:
        return
    SpeculativeAlgorithm.register(NAME, supports_overlap=True, spec_class=DDTreeAlgorithm)(_worker)
    register_attention_backend(BACKEND)(_backend)
    add_attention_backend_choices([BACKEND])
    if _wanted():
        HookRegistry.register(hooks.REQUEST_CHECK, hooks.refuse_logprobs, HookType.AROUND)


def _worker(server_args: object) -> type:
    from ddtree.sglang.worker import DDTreeWorker

    return DDTreeWorker


def _backend(runner: object) -> object:
    from ddtree.sglang.worker import target_backend

    return target_backend(runner, Settings.of(os.environ))
