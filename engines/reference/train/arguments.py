"""Command line of the trainer."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LOSSES = {"ce": 1.0, "mix": 0.5, "kl": 0.0}
"""Share of the one-hot label; the rest is the target's own distribution."""
OPTIMISERS = ("adamw", "muon")


@dataclass(frozen=True)
class Arguments:
    """What was asked for; token counts in tokens, minutes of wall clock for the whole run."""

    target: Path
    out: Path
    init: Path | None
    prompts: Path | None
    data: Path | None
    save_data: Path | None
    parts_dir: Path | None
    layers: int
    block_size: int
    target_layers: tuple[int, ...]
    mask_token: int
    tokens: int
    wave: int
    user_tokens: int
    response_tokens: int
    minutes: float
    steps: int | None
    conversations: int
    anchors: int
    lr: float
    optimiser: str
    loss: str
    gamma: float
    held_out: int
    budgets: tuple[int, ...]
    device: str
    dtype: str
    compiled: bool
    seed: int

    def __post_init__(self) -> None:
        at_least = {"layers": 1, "block_size": 2, "tokens": 1, "wave": 2, "user_tokens": 1, "response_tokens": 8}
        at_least |= {"conversations": 1, "anchors": 1, "held_out": 1}
        for name, least in at_least.items():
            if getattr(self, name) < least:
                raise ValueError(f"--{name.replace('_', '-')} {getattr(self, name)}: must be at least {least}")
        for name in ("minutes", "lr", "gamma"):
            if not getattr(self, name) > 0:
                raise ValueError(f"--{name} {getattr(self, name)}: must be above 0")
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"--steps {self.steps}: must be at least 1")
        if any(not 1 <= budget < 1024 for budget in self.budgets):
            raise ValueError(f"--budgets {list(self.budgets)}: each must be 1 to 1023")
        if self.data is None and self.held_out >= self.wave:
            raise ValueError(f"--held-out {self.held_out}: must be below --wave {self.wave}")


def parse(argv: Sequence[str] | None = None) -> Arguments:
    """Raises ValueError for values out of range; argparse itself exits with 2 on unknown ones."""
    values = vars(_parser().parse_args(argv))
    values["target"] = values.pop("target_gguf") or values["target"]
    return Arguments(**values)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m engines.reference.train",
        description="Train a DFlash drafter for a chat model, from text that the model writes itself.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--target", type=Path, metavar="FOLDER", help="Hugging Face folder of the target")
    source.add_argument(
        "--target-gguf", type=Path, metavar="FILE", help="the target as a GGUF file (llama architecture)"
    )
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="FOLDER", help="where the checkpoint goes, about every minute")
    add("--init", type=Path, metavar="FOLDER", help="start from this checkpoint's weights")
    add("--prompts", type=Path, metavar="FILE", help='more user turns, JSON Lines of {"prompt": text}; used first')
    add("--data", type=Path, metavar="FILE", help="train on conversations that --save-data wrote; generate none")
    add("--save-data", type=Path, metavar="FILE", help="keep the generated conversations (safetensors)")
    add("--parts-dir", type=Path, metavar="FOLDER", help="also write every file in parts of at most 15 MiB")
    shape = parser.add_argument_group("drafter")
    shape.add_argument("--layers", type=int, default=4)
    shape.add_argument("--block-size", type=int, default=8, help="the seed token and what is predicted after it")
    shape.add_argument("--target-layers", type=_integers, default=(1, 10, 19, 27), metavar="I,J,...")
    shape.add_argument("--mask-token", type=int, default=0, metavar="ID")
    data = parser.add_argument_group("data")
    data.add_argument("--tokens", type=_count, default=8_000_000, help="response tokens to train on, e.g. 500k or 8M")
    data.add_argument("--wave", type=int, default=4096, help="conversations generated at once")
    data.add_argument("--user-tokens", type=int, default=64, help="greatest length of a user turn after its opener")
    data.add_argument("--response-tokens", type=int, default=256, help="greatest length of a response")
    data.add_argument("--held-out", type=int, default=64, help="greedy conversations kept for evaluation")
    training = parser.add_argument_group("training")
    training.add_argument("--minutes", type=float, default=8.5, help="wall clock of the whole run")
    training.add_argument("--steps", type=int, help="end the schedule after this many steps, not with the time")
    training.add_argument("--conversations", type=int, default=128, help="conversations a step")
    training.add_argument("--anchors", type=int, default=32, help="blocks per conversation and step")
    training.add_argument("--lr", type=float, default=2e-3)
    training.add_argument("--optimiser", choices=OPTIMISERS, default="adamw")
    training.add_argument("--loss", choices=sorted(LOSSES), default="ce", help="labels: tokens, both, distribution")
    training.add_argument("--gamma", type=float, default=4.0, help="position k weighs exp(-(k-1)/gamma)")
    evaluation = parser.add_argument_group("evaluation")
    evaluation.add_argument("--budgets", type=_integers, default=(7, 15, 31, 63, 127), metavar="I,J,...")
    machine = parser.add_argument_group("machine")
    machine.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu")
    machine.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    machine.add_argument("--no-compile", dest="compiled", action="store_false", help="do not use torch.compile")
    machine.add_argument("--seed", type=int, default=0)
    return parser


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def _count(text: str) -> int:
    scale = {"k": 1_000, "M": 1_000_000}.get(text[-1:], 1)
    return int(float(text.rstrip("kM")) * scale)
