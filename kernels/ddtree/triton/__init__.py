"""Triton kernels behind the public signatures. Imported only when a CUDA tensor arrives (or under the interpreter)."""
