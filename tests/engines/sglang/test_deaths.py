"""The first cause of a server's end, from logs as SGLang writes them."""

from __future__ import annotations

from engines.sglang.deaths import cause
from tests.engines.sglang.server import MEMORY_LOG, PLUGIN_LOG


def test_the_scheduler_s_own_error_is_the_cause() -> None:
    assert cause(MEMORY_LOG).startswith("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static")
    prefixed = MEMORY_LOG.replace("RuntimeError: Not", "torch.OutOfMemoryError: CUDA out of memory. Not")
    assert cause(prefixed).startswith("torch.OutOfMemoryError: CUDA out of memory. ")


def test_a_plugin_that_fails_is_named_with_its_reason() -> None:
    assert cause(PLUGIN_LOG) == (
        "SGLang could not load our ddtree plugin: ddtree.sglang.symbols.IncompatibleError: SGLang 0.5.17 has no "
        "FutureMap.stash"
    )


def test_a_plugin_that_does_not_fit_this_sglang_says_so() -> None:
    line = "ddtree: this SGLang does not fit: sglang.srt.managers.utils:GenerationBatchResult has no accept_lens"
    assert cause(f"[2026-11-30 01:17:20] Available plugins for group sglang.srt.plugins:\n{line}\n") == line


def test_an_unknown_name_is_explained() -> None:
    for line in (
        "ValueError: Unknown speculative algorithm name: DDTREE",
        "launch_server.py: error: argument --attention-backend: invalid choice: 'ddtree' (choose from 'triton')",
    ):
        assert cause(line).startswith("SGLang knows no ddtree: our plugin is not in its environment; install ")


def test_other_logs_are_left_to_the_general_rule() -> None:
    assert cause("OSError: [Errno 98] Address already in use") == ""
    assert cause("") == ""
