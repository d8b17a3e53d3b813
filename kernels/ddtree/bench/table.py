"""The rows of the report."""

from dataclasses import asdict, dataclass, field
from typing import Any


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

    def text(self) -> str:
        """For the terminal."""
        return f"{'ok  ' if self.passed else 'FAIL'} {self.name:60} error {self.error:.3g} of {self.allowed:.3g}"
