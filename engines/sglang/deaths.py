"""Why an SGLang server ended, from its log.

Its processes report to each other, so the last error is seldom the first cause; and a plugin that fails is only logged,
so that the server then calls its names unknown.
"""

from __future__ import annotations

import re

_PLUGIN_REFUSED = re.compile(r"^ddtree: .*$", re.MULTILINE)
_PLUGIN_FAILED = re.compile(r"Failed to (?:load|execute general) plugin:? ddtree")
_RAISED = re.compile(r"^(?:\[[^\]]*\] )?[\w.]*(?:Error|Exception|Interrupt)\b.*$", re.MULTILINE)
_UNKNOWN = re.compile(r"Unknown speculative algorithm name: DDTREE|invalid choice: 'ddtree'")
_SCHEDULER = re.compile(r"Scheduler hit an exception: Traceback")
_UNREGISTERED = (
    "SGLang knows no ddtree: our plugin is not in its environment; install this project's kernels folder "
    "(ddtree-kernels) there"
)


def cause(log: str) -> str:
    """The first cause in one line; empty where the log's last error is as good as any."""
    refused = _PLUGIN_REFUSED.search(log)
    if refused is not None:
        return refused[0][:300]
    failed = _PLUGIN_FAILED.search(log)
    if failed is not None:
        return f"SGLang could not load our ddtree plugin: {_raised(log[failed.end() :])}"
    if _UNKNOWN.search(log):
        return _UNREGISTERED
    scheduler = _SCHEDULER.search(log)
    return _raised(log[scheduler.end() :]) if scheduler is not None else ""


def _raised(text: str) -> str:
    """The line that ends the traceback with which the text begins."""
    found = _RAISED.search(text)
    return found[0].strip()[:300] if found is not None else ""
