"""python -m ddtree.bench [--only NAME ...] [--no-dense] [--out FILE] | --check-only | --tune [--heads 64 128 256]"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import torch

from ddtree.bench.table import Check, Row

PARTS = ("checks", "steps", "attention")


def main() -> int:
    """Exit status 1 if a check failed, 2 without a GPU."""
    options = _options()
    if not torch.cuda.is_available():
        _say("ddtree.bench needs a CUDA device")
        return 2
    torch.manual_seed(options.seed)
    report = _tuned(options.heads) if options.tune else _measured(options)
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if report.get("failed") else 0


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ddtree.bench", description="Check the tree kernels and time them.")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--check-only", action="store_const", const=["checks"], dest="only")
    parser.add_argument("--no-dense", action="store_true", help="skip the SDPA and FlexAttention baselines")
    parser.add_argument("--tune", action="store_true", help="search for tile sizes instead")
    parser.add_argument("--heads", type=int, nargs="+", choices=(64, 128, 256), default=[128])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="also write JSON")
    return parser.parse_args()


def _tuned(heads: list[int]) -> dict[str, object]:
    from ddtree.bench.tune import tune

    return tune(heads)


def _measured(options: argparse.Namespace) -> dict[str, object]:
    from ddtree.bench.clock import copy_bandwidth, matmul_rate

    bandwidth, rate = copy_bandwidth(), matmul_rate()
    name = torch.cuda.get_device_name()
    _say(f"{name}: copies {bandwidth / 1e6:.2f} TB/s, multiplies {rate / 1e6:.0f} TFLOP/s in bf16")
    items: list[Check | Row] = []
    for item in _items(options, bandwidth, rate):
        _say(item.text())
        items.append(item)
    checks = [item for item in items if isinstance(item, Check)]
    failed = [item.name for item in checks if not item.passed]
    _say("\n  ".join([f"{len(checks)} checks, {len(failed)} failed", *failed]))
    return {
        "device": name,
        "torch": torch.__version__,
        "bandwidth_tb_s": bandwidth / 1e6,
        "matmul_tflop_s": rate / 1e6,
        "failed": failed,
        "checks": [vars(item) for item in checks],
        "rows": [item.record() for item in items if isinstance(item, Row)],
    }


def _items(options: argparse.Namespace, bandwidth: float, rate: float) -> Iterator[Check | Row]:
    from ddtree.bench import attention, checks, steps

    if "checks" in options.only:
        yield from checks.all_checks()
    if "steps" in options.only:
        yield from steps.rows(bandwidth)
    if "attention" in options.only:
        yield from attention.rows(bandwidth, rate, not options.no_dense)


if __name__ == "__main__":
    raise SystemExit(main())
