"""The load generator: `client` starts it and believes it, `child` is the process that sends and stamps.

Names are imported when they are asked for, because the child imports this package and must start in no time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.load.client import LoadClient, LoadResult
    from orchestrator.load.loops import NOT_SENT

__all__ = ["NOT_SENT", "LoadClient", "LoadResult"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from orchestrator.load import client

    return getattr(client, name)
