"""Tokens to text and back: the tokenizer, and text that grows by whole characters as tokens arrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tokenizers

_REPLACEMENT = "\ufffd"
_REBASE_AT = 24
_OVERLAP = 8


class Tokenizer:
    """tokenizer.json of a model folder. ValueError (one line) where it is missing or broken."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ValueError(f"{folder}: no tokenizer.json")
        try:
            return cls(tokenizers.Tokenizer.from_file(str(path)))
        except Exception as error:  # the package raises bare Exception
            raise ValueError(f"{path}: not a tokenizer: {error}") from error

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        ids: list[int] = self._backend.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text without special tokens; bytes that are no whole character become U+FFFD."""
        text: str = self._backend.decode(token_ids, skip_special_tokens=True)
        return text

    def token_text(self, token_id: int) -> str:
        """One token by itself, special tokens shown."""
        text: str = self._backend.decode([token_id], skip_special_tokens=False)
        return text


@dataclass(frozen=True)
class Piece:
    """New text, how many of the tokens pushed count, and whether a stop string ended the text."""

    text: str
    kept: int
    stopped: bool = False


class TextStream:
    """Text of one request, released as soon as it is certain: whole characters, and nothing of a stop string.

    The text of all pieces plus `flush()` is the decoded text of all tokens, cut before the first stop string.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._window: list[int] = []
        self._released = 0
        self._held = ""

    def push(self, token_ids: Sequence[int]) -> Piece:
        """Add one step's tokens, in order."""
        if not self._stop:
            return Piece(self._grow(token_ids), len(token_ids))
        released: list[str] = []
        # One token at a time, so that the count ends at the token that completes a stop string.
        for count, token_id in enumerate(token_ids, 1):
            text, stopped = self._scan(self._held + self._grow((token_id,)))
            released.append(text)
            if stopped:
                return Piece("".join(released), count, stopped=True)
        return Piece("".join(released), len(token_ids))

    def flush(self) -> str:
        """What was still held back when the tokens ended."""
        rest = self._held + self._tokenizer.decode(self._window)[self._released :]
        self._window, self._released, self._held = [], 0, ""
        return rest

    def _grow(self, token_ids: Sequence[int]) -> str:
        self._window.extend(token_ids)
        text = self._tokenizer.decode(self._window)
        whole = text.rstrip(_REPLACEMENT)
        new = whole[self._released :]
        self._released += len(new)
        if len(self._window) >= _REBASE_AT and len(whole) == len(text):
            # The kept tokens may begin inside a character; what they decode to by themselves stays a fixed prefix.
            del self._window[:-_OVERLAP]
            self._released = len(self._tokenizer.decode(self._window))
        return new

    def _scan(self, text: str) -> tuple[str, bool]:
        found = [at for at in (text.find(stop) for stop in self._stop) if at >= 0]
        if found:
            self._window, self._released, self._held = [], 0, ""
            return text[: min(found)], True
        hold = max(_overlap(text, stop) for stop in self._stop)
        self._held = text[len(text) - hold :]
        return text[: len(text) - hold], False


def _overlap(text: str, stop: str) -> int:
    """Length of the longest proper prefix of `stop` that ends `text`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
