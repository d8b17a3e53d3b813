"""Conversations on disk, so that several trainings can share one generation."""

from itertools import accumulate
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from engines.reference.train.generate import Conversation, Corpus


def save_corpus(corpus: Corpus, file: Path, vocab_size: int) -> None:
    """Packed token ids, lengths and starts; the held-out conversations come first."""
    items = [*corpus.held_out, *corpus.training]
    small = torch.uint16 if vocab_size <= 1 << 16 else torch.int32
    file.parent.mkdir(parents=True, exist_ok=True)
    tensors = {
        "tokens": torch.cat([item.tokens for item in items]).to(small),
        "lengths": torch.tensor([len(item.tokens) for item in items], dtype=torch.int32),
        "starts": torch.tensor([item.start for item in items], dtype=torch.int32),
    }
    save_file(tensors, file, metadata={"held_out": str(len(corpus.held_out)), "vocab_size": str(vocab_size)})


def load_corpus(file: Path, vocab_size: int, *, held_out: int, tokens: int) -> Corpus:
    """At most `tokens` response tokens for training and `held_out` of the conversations that the file holds out.

    Raises ValueError for another vocabulary.
    """
    with safe_open(file, framework="pt") as stored:
        notes = stored.metadata()
        if int(notes["vocab_size"]) != vocab_size:
            raise ValueError(f"{file}: made with a vocabulary of {notes['vocab_size']}, the target's has {vocab_size}")
        packed: torch.Tensor = stored.get_tensor("tokens").to(torch.int32)
        lengths, starts = stored.get_tensor("lengths").tolist(), stored.get_tensor("starts").tolist()
    pieces = torch.split(packed, lengths)
    items = [Conversation(piece, start) for piece, start in zip(pieces, starts, strict=True)]
    apart = int(notes["held_out"])
    sizes = accumulate(item.response_tokens for item in items[apart:])
    enough = sum(size < tokens for size in sizes) + 1
    return Corpus(training=items[apart : apart + enough], held_out=items[: min(apart, held_out)])
