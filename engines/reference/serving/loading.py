"""Loads what the server serves. Imports torch, so it is imported by the decode thread alone."""

from __future__ import annotations

import torch

from engines.digests import digest
from engines.reference.decoding.engine import Engine
from engines.reference.model.checkpoint import load_drafter, load_target
from engines.reference.serving.chat import ChatTemplate
from engines.reference.serving.options import Options
from engines.reference.serving.served import Loaded, ServedModel
from engines.reference.serving.text import Tokenizer

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load(options: Options) -> Loaded:
    """Target, drafter, tokenizer and template. ValueError or OSError (one line) for a model that does not work."""
    if options.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda: torch finds no CUDA device here")
    torch.set_num_threads(options.threads)
    tokenizer, chat = Tokenizer.load(options.target), ChatTemplate.load(options.target)
    target = load_target(options.target, _DTYPES[options.dtype], options.device)
    drafter = load_drafter(options.drafter, target) if options.drafter is not None else None
    engine = Engine(target, drafter, options.method, options.max_batch, options.max_context)
    model = ServedModel(
        tokenizer=tokenizer,
        chat=chat,
        vocab_size=target.config.vocab_size,
        block_size=drafter.config.block_size if drafter is not None else None,
        attention_backend="torch-sdpa",
        target_digest=digest(options.target),
        drafter_digest=digest(options.drafter) if options.drafter is not None else None,
        settings={"architecture": target.config.architecture, "torch": str(torch.__version__)},
    )
    return Loaded(engine, model)
