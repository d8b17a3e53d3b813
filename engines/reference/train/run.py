"""One training run from target to checkpoint: generate, keep features, train, evaluate, write."""

import logging
import platform
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import Any

import torch
import transformers

from engines.reference.train.arguments import LOSSES, Arguments
from engines.reference.train.checkpoint import load_initial, write_checkpoint
from engines.reference.train.corpus import load_corpus, save_corpus
from engines.reference.train.drafter import Drafter, DrafterConfig
from engines.reference.train.evaluate import Acceptance, evaluate
from engines.reference.train.features import FeatureStore
from engines.reference.train.generate import Corpus, Limits, Wave, generate
from engines.reference.train.loop import Recipe, Report, Schedule, Trainer
from engines.reference.train.optimiser import Optimiser
from engines.reference.train.prompts import ChatFrame, Opening, encode, from_file, self_written
from engines.reference.train.source import Source, read_source
from engines.reference.train.target import Target

log = logging.getLogger(__name__)

GENERATION_SHARE = 0.4
"""Of the wall clock, at most, until generation ends."""
CHECKPOINT_SECONDS = 60.0
QUICK_CONVERSATIONS = 48
QUICK_TREES = 6
WRITING_SECONDS = 5.0
OPENER_TOKENS = 32


class Run:
    """State of a run; `record` is what training.json holds."""

    def __init__(self, arguments: Arguments):
        self.arguments = arguments
        self.began = self.written = monotonic()
        self.device = _device(arguments.device)
        torch.manual_seed(arguments.seed)
        source = read_source(arguments.target)
        self.target = Target(source.config, source.weights, self.device, getattr(torch, arguments.dtype))
        self.config = DrafterConfig.for_target(
            source.config,
            layers=arguments.layers,
            block_size=arguments.block_size,
            target_layer_ids=arguments.target_layers,
            mask_token=arguments.mask_token,
        )
        self.drafter = Drafter(self.config).to(self.device)
        if arguments.init is not None:
            kept = load_initial(self.drafter, arguments.init)
            log.info("starting from %s, %d of %d layers", arguments.init, kept, arguments.layers)
        self.record = self._new_record(source)
        log.info("target %s on %s, %s", source.name, self.device, self.record["versions"]["device"])
        corpus = self._corpus(source)
        self.record["data"] = _describe(corpus)
        self.store, self.held_out = self._features(corpus)

    def train(self) -> Acceptance:
        """The whole of training and evaluation; the final checkpoint is written when it returns."""
        reserve = self._reserve()
        self._write("running")
        deadline = self.began + 60 * self.arguments.minutes - reserve
        if deadline <= monotonic():
            raise ValueError(
                f"--minutes {self.arguments.minutes}: nothing is left for training, give more or lower --tokens"
            )
        trainer = self._trainer()
        log.info("training for %.0f s", deadline - monotonic())
        train_began = monotonic()
        self.record["steps"] = trainer.fit(Schedule(deadline, self.arguments.steps), self._on_report)
        self.record["train_seconds"] = round(monotonic() - train_began, 1)
        self._write("training ended")
        result = self._evaluate(self.arguments.budgets, len(self.held_out))
        self._write("finished")
        return result

    def _reserve(self) -> float:
        """Seconds to keep for the last evaluation and writing: what a small evaluation takes now, scaled up."""
        self._evaluate((), QUICK_CONVERSATIONS)
        began = monotonic()
        self._evaluate(self.arguments.budgets, QUICK_TREES)
        share = min(1.0, QUICK_TREES / len(self.held_out))
        return 1.2 * (monotonic() - began) / share + WRITING_SECONDS

    def _corpus(self, source: Source) -> Corpus:
        arguments = self.arguments
        if arguments.data is not None:
            return load_corpus(
                arguments.data, source.config.vocab_size, held_out=arguments.held_out, tokens=arguments.tokens
            )
        frame = ChatFrame.of(source.tokenizer)
        wave = Wave(self.target, frame, arguments.wave, self._limits(source, frame))
        deadline = self.began + GENERATION_SHARE * 60 * arguments.minutes
        corpus = generate(
            wave,
            self._openings(source, frame),
            tokens=arguments.tokens,
            held_out=arguments.held_out,
            deadline=deadline,
        )
        if not corpus.training or not corpus.held_out:
            raise ValueError("the target wrote no usable response: it ends its turns at once")
        if arguments.save_data is not None:
            save_corpus(corpus, arguments.save_data, source.config.vocab_size)
        return corpus

    def _limits(self, source: Source, frame: ChatFrame) -> Limits:
        before = len(encode(source.tokenizer, frame.before))
        longest = max(OPENER_TOKENS, self.arguments.user_tokens)
        limits = Limits(before + longest, self.arguments.user_tokens, self.arguments.response_tokens)
        total = limits.opening + limits.user + len(frame.after) + limits.response
        if total + self.config.block_size > source.config.max_positions:
            raise ValueError(f"conversations of {total} tokens do not fit the target's {source.config.max_positions}")
        return limits

    def _openings(self, source: Source, frame: ChatFrame) -> Iterator[Opening]:
        own = self_written(source.tokenizer, frame, self.arguments.seed, OPENER_TOKENS)
        if self.arguments.prompts is None:
            return own
        given = from_file(self.arguments.prompts, source.tokenizer, frame, self.arguments.user_tokens)
        log.info("%d user turns from %s", len(given), self.arguments.prompts)
        return chain(given, own)

    def _features(self, corpus: Corpus) -> tuple[FeatureStore, FeatureStore]:
        soft = LOSSES[self.arguments.loss] < 1
        began = monotonic()
        held_out = FeatureStore.build(self.target, corpus.held_out, self.config.target_layer_ids, final=False)
        store = FeatureStore.build(self.target, corpus.training, self.config.target_layer_ids, final=soft)
        log.info("features of %d conversations in %.1f s", len(store), monotonic() - began)
        return store, held_out

    def _trainer(self) -> Trainer:
        arguments = self.arguments
        recipe = Recipe(
            conversations=arguments.conversations,
            anchors=arguments.anchors,
            gamma=arguments.gamma,
            hard=LOSSES[arguments.loss],
            compiled=arguments.compiled and self.device.type == "cuda",
        )
        optimiser = Optimiser(self.drafter, arguments.optimiser, arguments.lr)
        return Trainer(self.drafter, self.target, self.store, optimiser, recipe, arguments.seed)

    def _on_report(self, report: Report) -> None:
        self.record["losses"].append(asdict(report))
        self.record["steps"], self.record["train_seconds"] = report.step, report.seconds
        if monotonic() - self.written >= CHECKPOINT_SECONDS:
            self._evaluate((), QUICK_CONVERSATIONS)
            self._write("running")

    def _evaluate(self, budgets: tuple[int, ...], conversations: int) -> Acceptance:
        """Of the weights as they ship: in the target's dtype."""
        shipped = deepcopy(self.drafter)
        for parameter in shipped.parameters():
            parameter.data = parameter.data.to(self.target.dtype)
        result = evaluate(shipped, self.target, self.held_out, budgets, conversations)
        log.info("held-out acceptance after %d steps: %s", self.record["steps"], result)
        self.record["evaluations"].append({"step": self.record["steps"], **result.record()})
        return result

    def _write(self, status: str) -> None:
        self.record["status"] = status
        self.record["run_seconds"] = round(monotonic() - self.began, 1)
        write_checkpoint(self.drafter, self.arguments.out, self.record, self.arguments.parts_dir)
        self.written = monotonic()
        log.info("wrote %s (%s)", self.arguments.out, status)

    def _new_record(self, source: Source) -> dict[str, Any]:
        arguments = {
            name: value.name if isinstance(value, Path) else value for name, value in asdict(self.arguments).items()
        }
        return {
            "status": "running",
            "target": source.name,
            "arguments": arguments,
            "versions": _versions(self.device),
            "parameters": sum(parameter.numel() for parameter in self.drafter.parameters()),
            "data": {},
            "steps": 0,
            "train_seconds": 0.0,
            "run_seconds": 0.0,
            "losses": [],
            "evaluations": [],
        }


def _device(name: str) -> torch.device:
    if name.split(":")[0] not in ("cuda", "cpu"):
        raise ValueError(f"--device {name}: must be cuda, cuda:N or cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"--device {name}: this machine has no CUDA device; --device cpu is slow but works")
    torch.set_float32_matmul_precision("high")
    # cuDNN attention plans every shape anew; the other kernels do not.
    torch.backends.cuda.enable_cudnn_sdp(False)
    return torch.device(name)


def _versions(device: torch.device) -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU ({platform.machine()})",
    }


def _describe(corpus: Corpus) -> dict[str, int]:
    return {
        "conversations": len(corpus.training),
        "response_tokens": corpus.tokens,
        "longest_response": max(item.response_tokens for item in corpus.training),
        "held_out": len(corpus.held_out),
    }
