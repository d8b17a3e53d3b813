"""Compile every kernel for sm_90 and sm_120 without a GPU and report what the assembler says.

    python -m ddtree.build_report [--arch 90 120] [--only topk steps sample attention] [--out report.json]

The public functions run on small CPU tensors with launches turned into compilations, so that what is compiled is what
would be launched, specialisations included. Exit status 1 if a kernel spills registers or exceeds its architecture's
shared memory.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ddtree import dispatch
from ddtree.build_cases import CASES

SHARED_LIMIT = {90: 227 * 1024, 120: 99 * 1024}
ARCHITECTURES = {90: "sm_90a", 120: "sm_120a"}
PROCESSORS = {90: 132, 120: 188}


@dataclass(frozen=True)
class Build:
    """One compiled kernel: registers per thread, spilled bytes (stores, loads), stack bytes, shared memory bytes."""

    arch: int
    kernel: str
    variant: str
    warps: int
    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    shared: int

    @property
    def fits(self) -> bool:
        """No spill and no more shared memory than a block may have."""
        return self.spill_stores + self.spill_loads + self.stack == 0 and self.shared <= SHARED_LIMIT[self.arch]


class _NoGpu:
    """The part of Triton's driver that a compilation asks."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


@contextmanager
def compiling(arch: int) -> Iterator[list[tuple[str, Any]]]:
    """Within, launches of Triton kernels on CPU tensors compile for `arch` and are listed as (variant, kernel)."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.runtime.jit import JITFunction

    from ddtree.triton import device

    launched: list[tuple[str, Any]] = []
    run, standin, active = JITFunction.run, device.STANDIN[0], triton.runtime.driver._active

    def compile_only(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        compiled = run(kernel, *arguments, grid=grid, warmup=True, **options)
        shown = [f"{name}={value}" for name, value in options.items() if name.isupper() or name == "num_stages"]
        floats = {a.dtype for a in arguments if isinstance(a, torch.Tensor) and a.dtype.is_floating_point}
        kinds = "+".join(sorted(str(kind).removeprefix("torch.") for kind in floats))
        launched.append((" ".join([kinds, *shown]), compiled))
        return compiled

    triton.runtime.driver.set_active(_NoGpu(GPUTarget("cuda", arch, 32)))
    JITFunction.run = compile_only
    device.STANDIN[0] = device.Target(arch, PROCESSORS[arch])
    dispatch.PACKAGES["cpu"] = "triton"
    try:
        yield launched
    finally:
        del dispatch.PACKAGES["cpu"]
        device.STANDIN[0] = standin
        JITFunction.run = run
        triton.runtime.driver._active = active
        for value in _jit_functions():
            value.device_caches.clear()


def _jit_functions() -> list[Any]:
    from triton.runtime.jit import JITFunction

    modules = [module for name, module in sys.modules.items() if name.startswith("ddtree.triton.")]
    return [value for module in modules for value in vars(module).values() if isinstance(value, JITFunction)]


def inspect(arch: int, variant: str, kernel: Any) -> Build:
    """Assemble the kernel's PTX once more, verbosely."""
    from triton.backends.nvidia.compiler import get_ptxas

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(kernel.asm["ptx"])
        command = [get_ptxas(arch).path, "-v", f"--gpu-name={ARCHITECTURES[arch]}", str(source), "-o", "/dev/null"]
        log = subprocess.run(command, check=True, capture_output=True, text=True).stderr

    def number(pattern: str) -> int:
        return sum(map(int, re.findall(pattern, log)))

    return Build(
        arch,
        kernel.metadata.name,
        variant,
        kernel.metadata.num_warps,
        number(r"Used (\d+) registers"),
        number(r"(\d+) bytes spill stores"),
        number(r"(\d+) bytes spill loads"),
        number(r"(\d+) bytes stack frame"),
        kernel.metadata.shared,
    )


def build(arch: int, cases: list[str]) -> list[Build]:
    """Compile the named cases for one architecture."""
    with compiling(arch) as launched:
        for case in cases:
            CASES[case](arch)
    unique = {kernel.hash: (variant, kernel) for variant, kernel in launched}
    return [inspect(arch, variant, kernel) for variant, kernel in unique.values()]


def line(item: Build) -> str:
    """One row of the printed table."""
    spills = item.spill_stores + item.spill_loads + item.stack
    verdict = "ok" if item.fits else "TOO MUCH"
    return (
        f"sm_{item.arch:<4} {item.kernel:12} {item.registers:4} regs x {item.warps:2} warps {spills:6} B spilled "
        f"{item.shared:7} B shared  {verdict}  {item.variant}"
    )


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Compile every kernel without a GPU and report registers and memory.")
    parser.add_argument("--arch", type=int, nargs="+", choices=sorted(ARCHITECTURES), default=sorted(ARCHITECTURES))
    parser.add_argument("--only", nargs="+", choices=sorted(CASES), default=list(CASES))
    parser.add_argument("--out", type=Path, help="also write the table as JSON")
    options = parser.parse_args()
    if os.environ.get("TRITON_INTERPRET", "0") == "1":
        parser.error("TRITON_INTERPRET=1 interprets kernels; unset it to compile them")
    builds = [item for arch in options.arch for item in build(arch, options.only)]
    for item in builds:
        print(line(item))  # noqa: T201
    failed = sum(not item.fits for item in builds)
    print(f"{len(builds)} kernels compiled, {failed} over the limits")  # noqa: T201
    if options.out:
        options.out.write_text(json.dumps([asdict(item) | {"fits": item.fits} for item in builds], indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
