"""What a command that changes a target prints: lines for people, or one JSON document and the lines on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import typer

from orchestrator.errors import InputError
from orchestrator.promotion.host import HostError

if TYPE_CHECKING:
    from orchestrator.promotion.progress import Progress
    from orchestrator.promotion.site import Site


@dataclass
class Telling:
    """`document`: what --json prints when the command ends, whichever way."""

    command: str
    target: str
    as_json: bool
    document: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from rich.console import Console

        from orchestrator.promotion.progress import Progress

        self._console = Console(stderr=self.as_json)
        self.progress: Progress = Progress(self._console)
        self.document |= {"command": self.command, "target": self.target, "outcome": "refused", "message": ""}

    def say(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(text), soft_wrap=True)

    def plan(self, lines: Sequence[str]) -> None:
        """Show what would be done."""
        self.document |= {"outcome": "planned", "plan": list(lines)}
        for line in lines:
            self.say(line)

    def confirm(self, yes: bool, question: str) -> None:
        """Ask once, unless `yes` answers. InputError where nobody is there to answer."""
        self.document["outcome"] = "not confirmed"
        if yes:
            return
        if not sys.stdin.isatty():
            raise InputError("nobody is there to confirm; --yes goes on without asking")
        typer.confirm(question, abort=True, err=self.as_json)

    @contextmanager
    def changing(self, site: Site) -> Iterator[None]:
        """The change itself: how it ended, what it did, and what serves after it."""
        self.document["outcome"] = "failed"
        try:
            yield
            self.document["outcome"] = "done"
        except KeyboardInterrupt:
            self.document["outcome"] = "interrupted"
            raise
        finally:
            self.document["steps"] = self.progress.taken
            with suppress(HostError, InputError):
                standing = site.journal.standing()
                self.document["serving"] = standing.serving.release if standing.serving else None
                self.document["left_open"] = standing.change is not None

    @contextmanager
    def told(self) -> Iterator[None]:
        """Print the document at the end, with the reason where there is one."""
        try:
            yield
        except Exception as error:
            self.document["message"] = str(error)
            raise
        finally:
            if self.as_json:
                typer.echo(json.dumps(self.document, indent=2))
