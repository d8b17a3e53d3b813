"""A decoding engine that plays a script, the tokenizer for it, and a server program around both.

Run as `python scripted.py PORT SETTINGS_JSON` it is the real server with this engine in place of the model.
"""

from __future__ import annotations

import json
import logging
import random
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from engines.reference.decoding.request import (
    DraftTree,
    Emission,
    FinishReason,
    GenerationRequest,
    Method,
    SamplingParams,
    SpecStats,
    StageTimes,
    TopLogprobs,
)
from engines.reference.server import serve
from engines.reference.serving.chat import ChatTemplate
from engines.reference.serving.options import Options
from engines.reference.serving.served import Loaded, ServedModel
from engines.reference.serving.text import Tokenizer

PLAIN = Method("autoregressive")
EOS = 256
VOCABULARY = 257
TEMPLATE = "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}<assistant>"


def byte_tokenizer() -> Tokenizer:
    return Tokenizer(byte_backend())


def byte_backend() -> tokenizers.Tokenizer:
    """One token a UTF-8 byte, numbered as the byte; 256 is the special token <eos>."""
    backend = tokenizers.Tokenizer(models.BPE(vocab=_byte_vocabulary(), merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([tokenizers.AddedToken("<eos>", special=True)])
    return backend


def _byte_vocabulary() -> dict[str, int]:
    """GPT-2's characters for bytes: printable ones stand for themselves, the others for 256, 257, ..."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    return {characters[byte]: byte for byte in range(256)}


@dataclass
class Play:
    """One request: all tokens of its script, and how many are out."""

    request: GenerationRequest
    tokens: list[int]
    done: int = 0
    stats: SpecStats = field(default_factory=SpecStats)


@dataclass
class ScriptedEngine:
    """Answers every request with the bytes of `answer` and then <eos>: one token first, then `chunk` tokens a step.

    A sampled request gets 20 letters drawn from its seed instead; with ignore_eos the script repeats up to max_tokens.
    `die_at_step` raises there; `refuse` = prompt length that submit refuses.
    """

    answer: str = "héllo wörld €uro 😀 end"
    chunk: int = 3
    step_s: float = 0.0
    die_at_step: int = -1
    refuse: int = -1
    method: Method = PLAIN
    steps_run: int = 0
    cancelled: list[str] = field(default_factory=list)
    plays: dict[str, Play] = field(default_factory=dict)
    total: SpecStats = field(default_factory=SpecStats)

    def submit(self, request: GenerationRequest) -> None:
        if len(request.prompt_ids) == self.refuse:
            raise ValueError("scripted refusal")
        self.plays[request.request_id] = Play(request, self._script(request.params))

    def cancel(self, request_id: str) -> None:
        if self.plays.pop(request_id, None):
            self.cancelled.append(request_id)

    def has_work(self) -> bool:
        return bool(self.plays)

    def step(self) -> list[Emission]:
        time.sleep(self.step_s)
        self.steps_run += 1
        if self.steps_run == self.die_at_step:
            raise RuntimeError("scripted death")
        return [self._advance(play) for play in list(self.plays.values())]

    def set_method(self, method: Method) -> None:
        if method.name == "dflash":
            raise ValueError("method dflash needs a drafter, and none is loaded")
        self.method = method

    def record(self, request: GenerationRequest, steps: int) -> list[DraftTree]:
        if self.method == PLAIN:
            raise ValueError("method autoregressive drafts nothing")
        letters = [*self.answer.encode()[:3]]
        return [DraftTree(letters, [-1, 0, 0], [0, 1, 1], [0.0, -0.25, -2.5], [0, 1], letters[2])] * steps

    def stats(self) -> SpecStats:
        return self.total

    def stage_times(self) -> StageTimes:
        return StageTimes(verify=1.5, decode_steps=self.steps_run)

    def _script(self, params: SamplingParams) -> list[int]:
        tokens = [*self.answer.encode()]
        if params.temperature:
            tokens = random.Random(params.seed).choices(range(97, 123), k=20)
        repeats = params.max_tokens if params.ignore_eos else 1
        return (tokens * repeats + [EOS])[: params.max_tokens]

    def _advance(self, play: Play) -> Emission:
        tokens = play.tokens[play.done :][: self.chunk if play.done else 1]
        stops = [index for index, token in enumerate(tokens) if token in (EOS, *play.request.params.stop_token_ids)]
        tokens = tokens[: stops[0] + 1] if stops else tokens
        if play.done:
            for stats in (play.stats, self.total):
                stats.record(self.chunk - 1, min(self.chunk - 1, len(tokens)), len(tokens))
        play.done += len(tokens)
        reason: FinishReason | None = "stop" if stops else "length" if play.done == len(play.tokens) else None
        if reason:
            del self.plays[play.request.request_id]
        snapshot = replace(play.stats, accepted_by_depth=list(play.stats.accepted_by_depth))
        return Emission(play.request.request_id, tokens, reason, snapshot, _tops(tokens, play.request.params.logprobs))


def _tops(tokens: list[int], wanted: int | None) -> tuple[TopLogprobs, ...]:
    """Made-up log-probabilities: -0.5 for the token itself, 1.25 less for each of the following ids."""
    if wanted is None:
        return ()
    return tuple(tuple(((token + n) % VOCABULARY, -0.5 - 1.25 * n) for n in range(wanted)) for token in tokens)


def scripted_model(template: str | None = TEMPLATE) -> ServedModel:
    chat = ChatTemplate(template, {"eos_token": "<eos>"}) if template else None
    return ServedModel(
        byte_tokenizer(),
        chat,
        VOCABULARY,
        block_size=4,
        attention_backend="scripted",
        target_digest="t1",
        drafter_digest=None,
    )


def make_options(**changes: Any) -> Options:
    """A server's options on any free port."""
    values: dict[str, Any] = {
        "target": Path("target"), "drafter": None, "method": PLAIN, "dtype": "float32",
        "device": "cpu", "threads": 1, "max_batch": 4, "max_context": 256, "max_queue": 4, "host": "127.0.0.1",
        "port": 0, "model_name": "target", "grace_s": 5,
    }  # fmt: skip
    return Options(**values | changes)


def main() -> int:
    logging.basicConfig(level=logging.INFO)
    settings = json.loads(sys.argv[2])
    load_s, load_error = settings.pop("load_s", 0.0), settings.pop("load_error", "")
    options = make_options(port=int(sys.argv[1]), grace_s=settings.pop("grace_s", 5))

    def load() -> Loaded:
        time.sleep(load_s)
        if load_error:
            raise ValueError(load_error)
        return Loaded(ScriptedEngine(**settings), scripted_model())

    return serve(options, load)


if __name__ == "__main__":
    raise SystemExit(main())
