"""Adapters by name, without what they adapt."""

from __future__ import annotations

import subprocess
import sys

import pytest

from engines.base import Engine, EngineError
from engines.registry import engine_names, get_engine

HEAVY = ("torch", "transformers", "fastapi", "uvicorn", "tokenizers", "ddtree")


@pytest.mark.parametrize("name", engine_names())
def test_every_name_gives_its_adapter(name: str) -> None:
    engine: Engine = get_engine(name)
    assert engine.name == name
    operations = [name for name in vars(Engine) if not name.startswith("_")]
    assert all(callable(getattr(engine, operation)) for operation in operations if operation != "methods")


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(EngineError, match="no engine 'trt'; there are fake, reference"):
        get_engine("trt")


def test_adapters_load_nothing_heavy() -> None:
    code = (
        "import sys; from engines.registry import *; before = 'aiohttp' in sys.modules\n"
        "[get_engine(name) for name in engine_names()]\n"
        f"print(before, [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False []"
