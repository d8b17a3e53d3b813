"""The rows of the report."""

from dataclasses import asdict, dataclass, field
from typing import Any

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

    def record(self) -> dict[str, float]:
        """For JSON."""
        return {
            "copy_tb_s": self.copied / 1e6,
            "bandwidth_tb_s": self.bandwidth / 1e6,
            "matmul_tflop_s": self.rate / 1e6,
            "launch_us": self.launch_us,
        }

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
