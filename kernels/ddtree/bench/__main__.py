"""python -m ddtree.bench [--only NAME ...] [--out FILE] | --check-only | --small | --tune | --all --out FOLDER"""

import argparse
import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from ddtree.bench.data import ROWS
from ddtree.bench.table import Check, Gap, Limits, Row, write

TIMED = ("steps", "attention", "dense", "shapes")
PARTS = ("checks", "small", *TIMED)


def main() -> int:
    """Exit status 1 if a check failed, 2 without a GPU."""
    options = _options()
    if options.all:
        from ddtree.bench import session

        return session.run(options.out, options.limit_s)
    if not torch.cuda.is_available():
        _say("ddtree.bench needs a CUDA device")
        return 2
    torch.manual_seed(options.seed)
    if options.warm:
        from ddtree.bench.warm import warm

        warm(options.heads)
        return 0
    if options.tuning:
        from ddtree.triton import device

        device.TUNED[:] = [options.tuning]
    report = _tuned(options) if options.tune else _measured(options)
    return 1 if report["failed"] else 0


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ddtree.bench", description="Check the tree kernels and time them.")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=["checks", "steps", "attention", "dense"])
    parser.add_argument("--check-only", action="store_const", const=["checks"], dest="only")
    parser.add_argument("--small", action="store_const", const=["small"], dest="only", help="few and small checks")
    parser.add_argument("--tune", action="store_true", help="search for tile sizes instead")
    parser.add_argument("--heads", type=int, nargs="+", choices=(64, 128, 256), default=[128])
    parser.add_argument("--rows", type=int, nargs="+", choices=ROWS, default=list(ROWS), help="of --tune")
    parser.add_argument("--seconds", type=float, default=600.0, help="most time of --tune")
    parser.add_argument("--warm", action="store_true", help="only compile, in many processes")
    parser.add_argument("--tuning", type=_table, help="a result of --tune, in place of the packaged table")
    parser.add_argument("--limits", type=_limits, help="an earlier result, whose measured limits to use again")
    parser.add_argument("--all", action="store_true", help="all of it, each part in a process of its own")
    parser.add_argument("--limit-s", type=float, default=420.0, help="most time of --all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="also write JSON; with --all the folder for it")
    options = parser.parse_args()
    if options.all and options.out is None:
        parser.error("--all needs --out FOLDER")
    return options


def _table(text: str) -> dict[str, Any]:
    return _report(text, ("attention",))


def _limits(text: str) -> Limits:
    return Limits.of(_report(text, Limits.FIELDS))


def _report(text: str, wanted: tuple[str, ...]) -> dict[str, Any]:
    try:
        report: dict[str, Any] = json.loads(Path(text).read_text())
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from None
    missing = [name for name in wanted if name not in report]
    if missing:
        raise argparse.ArgumentTypeError(f"{text} lacks {', '.join(missing)}")
    return report


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
        write(options.out, report)


def _tuned(options: argparse.Namespace) -> dict[str, Any]:
    from ddtree.bench.tune import tune

    report = _header()
    for found in tune(options.heads, options.rows, options.seconds):
        report |= found
        _write(options, report)
    report["complete"] = True
    _write(options, report)
    return report


def _measured(options: argparse.Namespace) -> dict[str, Any]:
    """The file is written anew after every item, so that an interrupted run keeps what it has."""
    report = _header() | {"checks": [], "rows": [], "gaps": []}
    lists = {Row: report["rows"], Check: report["checks"], Gap: report["gaps"]}
    for item in _items(options, report):
        _say(item.text())
        lists[type(item)].append(item.record())
        report["failed"] += [item.failure] if item.failure else []
        _write(options, report)
    report["complete"] = True
    _write(options, report)
    count = f"{len(report['checks'])} checks, {len(report['rows'])} rows, {len(report['failed'])} failed"
    _say("\n  ".join([count, *report["failed"]]))
    return report


def _items(options: argparse.Namespace, report: dict[str, Any]) -> Iterator[Check | Row | Gap]:
    from ddtree.bench import checks, clock

    if "checks" in options.only:
        yield from checks.all_checks()
    if "small" in options.only:
        yield from checks.small_checks()
    timed = [name for name in TIMED if name in options.only]
    if not timed:
        return
    limits = options.limits or clock.limits()
    report |= limits.record()
    _say(f"{report['device']}: {limits.text()}")
    for name in timed:
        yield from import_module(f"ddtree.bench.{name}").rows(limits)


if __name__ == "__main__":
    raise SystemExit(main())
