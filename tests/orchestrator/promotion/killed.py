"""The program, killed by SIGKILL at a moment: `python -m tests.orchestrator.promotion.killed MOMENT ARGUMENT...`.

A moment is `MARK STEP` of the journal (right after the entry is written), or `routed` (right after a canary's routes
are in force).
"""

from __future__ import annotations

import os
import signal
import sys

from orchestrator.cli import main
from orchestrator.promotion.journal import Entry, Journal
from orchestrator.promotion.router import Router
from orchestrator.promotion.routes import Routes

MOMENT = sys.argv.pop(1)
_add, _apply = Journal.add, Router.apply


def add(journal: Journal, entry: Entry) -> None:
    _add(journal, entry)
    if f"{entry.mark} {entry.step}".strip() == MOMENT:
        os.kill(os.getpid(), signal.SIGKILL)


def apply(router: Router, wanted: Routes) -> None:
    _apply(router, wanted)
    if MOMENT == "routed" and wanted.canary is not None:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    Journal.add = add  # type: ignore[method-assign]
    Router.apply = apply  # type: ignore[method-assign]
    main()
