"""The rows of the report."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

Item = TypeVar("Item")
LEAST_RATIO = 0.97  # a measured time may pass its floor by noise, but not by more


@dataclass(frozen=True)
class Limits:
    """What floors are made of: bytes per microsecond of a copy (read plus written) and of the faster of copying and
    reading, bf16 operations per microsecond, microseconds of a launch.
    """

    copied: float
    bandwidth: float
    rate: float
    launch_us: float

    FIELDS: ClassVar = ("copy_tb_s", "bandwidth_tb_s", "matmul_tflop_s", "launch_us")

    def record(self) -> dict[str, float]:
        """For JSON."""
        return {
            "copy_tb_s": self.copied / 1e6,
            "bandwidth_tb_s": self.bandwidth / 1e6,
            "matmul_tflop_s": self.rate / 1e6,
            "launch_us": self.launch_us,
        }

    @classmethod
    def of(cls, record: dict[str, Any]) -> "Limits":
        """From what `record` gave."""
        copied, bandwidth, rate = (record[name] * 1e6 for name in cls.FIELDS[:3])
        return cls(copied, bandwidth, rate, record["launch_us"])

    def text(self) -> str:
        """For the terminal."""
        return (
            f"copies {self.copied / 1e6:.2f} TB/s, at best {self.bandwidth / 1e6:.2f} TB/s, "
            f"multiplies {self.rate / 1e6:.0f} TFLOP/s in bf16, launches in {self.launch_us:.2f} us"
        )


@dataclass(frozen=True)
class Row:
    """One kernel at one shape: microseconds, the floor in microseconds and what sets it, and others' times."""

    kernel: str
    shape: str
    us: float
    floor_us: float
    floor_by: str
    baselines: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """Time over floor."""
        return self.us / self.floor_us if self.floor_us else float("nan")

    @property
    def failure(self) -> str:
        """What is wrong, or nothing: a kernel that beats its floor shows that the floor is wrong."""
        if self.ratio >= LEAST_RATIO:
            return ""
        return f"{self.kernel} {self.shape} takes {self.ratio:.2f} of its floor: the floor is wrong"

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(self).items()} | {
            "ratio": round(self.ratio, 3)
        }

    def text(self) -> str:
        """For the terminal."""
        others = "  ".join(f"{name} {us:.1f} us = {us / self.us:.2f}x" for name, us in self.baselines.items())
        return (
            f"{self.kernel:14} {self.shape:44} {self.us:9.2f} us  floor {self.floor_us:8.2f} ({self.floor_by}) "
            f"ratio {self.ratio:6.2f}  {others}"
        )


@dataclass(frozen=True)
class Check:
    """One comparison: the greatest error, relative to the greatest reference value, and what is allowed."""

    name: str
    error: float
    allowed: float

    @property
    def passed(self) -> bool:
        """NaN does not pass."""
        return self.error <= self.allowed

    @property
    def failure(self) -> str:
        """The name of a check that did not pass."""
        return "" if self.passed else self.name

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def text(self) -> str:
        """For the terminal."""
        return f"{'ok  ' if self.passed else 'FAIL'} {self.name:60} error {self.error:.3g} of {self.allowed:.3g}"


@dataclass(frozen=True)
class Gap:
    """What could not be checked or timed and why. What is `ours` should have worked; a baseline may be missing."""

    name: str
    reason: str
    ours: bool = True

    @property
    def failure(self) -> str:
        """The name and the reason, if it is ours."""
        return f"{self.name}: {self.reason}" if self.ours else ""

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def text(self) -> str:
        """For the terminal."""
        return f"{'FAIL' if self.ours else 'none'} {self.name:60} {self.reason}"


def reason_of(error: BaseException) -> str:
    """One line of an exception."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]


def guarded(name: str, items: Iterable[Item], ours: bool = True) -> Iterator[Item | Gap]:
    """The items, and a gap in place of the exception that ends them: what follows is still measured."""
    try:
        yield from items
    except Exception as error:  # whatever it is, it belongs into the report
        yield Gap(name, reason_of(error), ours)


def write(path: Path, report: dict[str, Any]) -> None:
    """JSON, whole or not at all: who writes may be ended at any time."""
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(report, indent=1) + "\n")
    draft.replace(path)
