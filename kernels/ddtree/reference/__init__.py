"""Torch references: what the Triton kernels must reproduce, and what runs on a CPU."""
