"""What the target is given before it writes: chat-template ends, openers, and prompts from a file."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.reference.train import openers

MARKER = "USERTURN"


@dataclass(frozen=True)
class Opening:
    """Token ids that a sequence starts with; `complete` = the whole user turn is there, else the target goes on."""

    tokens: tuple[int, ...]
    complete: bool


@dataclass(frozen=True)
class ChatFrame:
    """The chat template around one user turn: text before it, and token ids from its end to the response."""

    before: str
    after: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: Any) -> "ChatFrame":
        """Raises ValueError if the tokenizer has no chat template that shows the user turn once."""
        if not getattr(tokenizer, "chat_template", None):
            raise ValueError("the target's tokenizer has no chat template: the trainer needs a chat model")
        messages = [{"role": "user", "content": MARKER}]
        parts = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True).split(MARKER)
        if len(parts) != 2:
            raise ValueError(f"the chat template shows the user turn {len(parts) - 1} times, it must be once")
        return cls(parts[0], tuple(encode(tokenizer, parts[1])))


def encode(tokenizer: Any, text: str) -> list[int]:
    """Ids of text as it stands; nothing is added around it."""
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def vocabulary_words(tokenizer: Any) -> list[str]:
    """Plain lower-case words that the tokenizer holds as one token after a space, in a fixed order."""
    pieces = (piece[1:] for piece in tokenizer.get_vocab() if piece[:1] in ("Ġ", "▁"))
    return sorted(
        {piece for piece in pieces if len(piece) > 3 and piece.isascii() and piece.isalpha() and piece.islower()}
    )


def self_written(tokenizer: Any, frame: ChatFrame, seed: int, limit: int) -> Iterator[Opening]:
    """Endless openings of user turns, at most `limit` opener tokens each, the four task groups in equal shares."""
    draw = random.Random(seed)
    words = (openers.WORDS, vocabulary_words(tokenizer) or openers.WORDS)
    before = encode(tokenizer, frame.before)
    while True:
        for group in openers.TASKS.values():
            text = _fill(draw.choice(group), draw, draw.choice(words))
            yield Opening((*before, *encode(tokenizer, text)[:limit]), complete=False)


def _fill(opener: str, draw: random.Random, words: Sequence[str]) -> str:
    word = draw.choice(words)
    return opener.format(
        word=word,
        Word=word.capitalize(),
        verb=draw.choice(openers.VERBS),
        name=draw.choice(openers.NAMES),
        mood=draw.choice(openers.MOODS),
        number=draw.randint(2, 99) if draw.random() < 0.8 else draw.randint(100, 2000),
    )


def from_file(path: Path, tokenizer: Any, frame: ChatFrame, limit: int) -> list[Opening]:
    """User turns of a JSON Lines file of {"prompt": text}; turns longer than `limit` tokens are left out.

    Raises ValueError that names the line for anything else.
    """
    before = encode(tokenizer, frame.before)
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        turn = encode(tokenizer, _prompt(path, number, line))
        if len(turn) <= limit:
            found.append(Opening((*before, *turn), complete=True))
    return found


def _prompt(path: Path, number: int, line: str) -> str:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {number}: not JSON ({error.msg})") from None
    if not isinstance(record, dict) or not isinstance(record.get("prompt"), str) or not record["prompt"]:
        raise ValueError(f'{path}, line {number}: must be an object with a text under "prompt"')
    return str(record["prompt"])
