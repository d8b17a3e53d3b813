"""Which implementation serves a device: Triton on CUDA, the torch reference everywhere else."""

import importlib
from types import ModuleType

import torch

PACKAGES = {"cuda": "triton"}


def implementation(operation: str, device: torch.device) -> ModuleType:
    """Module `ddtree.triton.<operation>` or `ddtree.reference.<operation>`, imported on first use."""
    package = PACKAGES.get(device.type, "reference")
    return importlib.import_module(f"ddtree.{package}.{operation}")
