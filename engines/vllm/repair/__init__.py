"""A folder for PYTHONPATH: what `sitecustomize` in it mends in a vLLM process. Never imported by the control plane."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
