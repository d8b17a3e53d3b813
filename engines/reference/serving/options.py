"""The server's command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from engines.reference.decoding.request import Method, MethodName

DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True)
class Options:
    """`max_queue`: requests that may wait beyond `max_batch`. `grace_s`: time for running requests after SIGTERM."""

    target: Path
    drafter: Path | None
    method: Method
    dtype: str
    device: str
    threads: int
    max_batch: int
    max_context: int
    max_queue: int
    host: str
    port: int
    model_name: str
    grace_s: int


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Ends the process with code 2 and a line on standard error where the arguments make no sense."""
    parser = _parser()
    values = vars(parser.parse_args(arguments))
    try:
        method = Method(values.pop("method"), values.pop("budget"), values.pop("chain"))
    except ValueError as error:
        parser.error(str(error))
    if method.name != "autoregressive" and values["drafter"] is None:
        parser.error(f"method {method.name} needs --drafter")
    values["model_name"] = values["model_name"] or values["target"].name
    return Options(method=method, **values)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("engines.reference.server", description="Serve a model with the reference engine.")
    model = parser.add_argument_group("model")
    model.add_argument("--target", type=Path, required=True, help="folder of the target model")
    model.add_argument("--drafter", type=Path, help="folder of the DFlash drafter")
    model.add_argument("--model-name", help="name in requests (default: the folder's name)")
    method = parser.add_argument_group("method")
    method.add_argument("--method", choices=get_args(MethodName), default="autoregressive")
    method.add_argument("--budget", type=int, help="tree nodes drafted, the root not counted (ddtree only)")
    method.add_argument("--chain", action="store_true", help="force the greedy chain into the tree (ddtree only)")
    place = parser.add_argument_group("where and how")
    place.add_argument("--dtype", choices=DTYPES, default="bfloat16")
    place.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    place.add_argument("--threads", type=_positive, default=1)
    place.add_argument("--max-batch", type=_positive, default=1, help="requests decoded at once")
    place.add_argument("--max-queue", type=_natural, default=64, help="requests that may wait beyond those")
    place.add_argument("--max-context", type=_positive, default=2048, help="tokens of prompt and answer together")
    place.add_argument("--host", default="127.0.0.1")
    place.add_argument("--port", type=_natural, default=8000)
    place.add_argument("--grace-s", type=_natural, default=30, help="seconds for running requests after SIGTERM")
    return parser


def _natural(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0, got {text!r}")
    return int(text)


def _positive(text: str) -> int:
    if _natural(text) == 0:
        raise argparse.ArgumentTypeError("must be at least 1")
    return int(text)
