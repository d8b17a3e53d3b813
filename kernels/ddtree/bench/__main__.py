"""python -m ddtree.bench [--only NAME ...] [--no-dense] [--out FILE] | --check-only | --small | --tune [--heads N]"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ddtree.bench.table import Check, Row

PARTS = ("checks", "small", "steps", "attention")


def main() -> int:
    """Exit status 1 if a check failed, 2 without a GPU."""
    options = _options()
    if not torch.cuda.is_available():
        _say("ddtree.bench needs a CUDA device")
        return 2
    torch.manual_seed(options.seed)
    report = _tuned(options) if options.tune else _measured(options)
    return 1 if report["failed"] else 0


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ddtree.bench", description="Check the tree kernels and time them.")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=["checks", "steps", "attention"])
    parser.add_argument("--check-only", action="store_const", const=["checks"], dest="only")
    parser.add_argument("--small", action="store_const", const=["small"], dest="only", help="few and small checks")
    parser.add_argument("--no-dense", action="store_true", help="skip the SDPA and FlexAttention baselines")
    parser.add_argument("--tune", action="store_true", help="search for tile sizes instead")
    parser.add_argument("--heads", type=int, nargs="+", choices=(64, 128, 256), default=[128])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="also write JSON")
    return parser.parse_args()


def _header() -> dict[str, Any]:
    import triton

    properties = torch.cuda.get_device_properties(0)
    return {
        "command": " ".join(["python", "-m", "ddtree.bench", *sys.argv[1:]]),
        "device": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "torch": torch.__version__,
        "triton": triton.__version__,
        "complete": False,
        "failed": [],
    }


def _write(options: argparse.Namespace, report: dict[str, Any]) -> None:
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")


def _tuned(options: argparse.Namespace) -> dict[str, Any]:
    from ddtree.bench.tune import tune

    report = _header() | tune(options.heads) | {"complete": True}
    _write(options, report)
    return report


def _measured(options: argparse.Namespace) -> dict[str, Any]:
    """The file is written anew after every item, so that an interrupted run keeps what it has."""
    report = _header() | {"checks": [], "rows": []}
    for item in _items(options, report):
        _say(item.text())
        report["rows" if isinstance(item, Row) else "checks"].append(item.record())
        report["failed"] += [item.failure] if item.failure else []
        _write(options, report)
    report["complete"] = True
    _write(options, report)
    count = f"{len(report['checks'])} checks, {len(report['rows'])} rows, {len(report['failed'])} failed"
    _say("\n  ".join([count, *report["failed"]]))
    return report


def _items(options: argparse.Namespace, report: dict[str, Any]) -> Iterator[Check | Row]:
    from ddtree.bench import attention, checks, clock, steps

    if "checks" in options.only:
        yield from checks.all_checks()
    if "small" in options.only:
        yield from checks.small_checks()
    if not {"steps", "attention"} & set(options.only):
        return
    limits = clock.limits()
    report |= limits.record()
    _say(f"{report['device']}: {limits.text()}")
    if "steps" in options.only:
        yield from steps.rows(limits)
    if "attention" in options.only:
        yield from attention.rows(limits, not options.no_dense)


if __name__ == "__main__":
    raise SystemExit(main())
