"""Engine names to adapters. An adapter is imported when it is asked for, and none of them imports its engine."""

from __future__ import annotations

from importlib import import_module

from engines.base import Engine, EngineError

_ADAPTERS = {
    "fake": "engines.fake.adapter:FakeEngine",
    "reference": "engines.reference.adapter:ReferenceEngine",
    "sglang": "engines.sglang.adapter:SglangEngine",
    "vllm": "engines.vllm.adapter:VllmEngine",
}


def engine_names() -> tuple[str, ...]:
    """Names that an arm or a profile may use, sorted."""
    return tuple(sorted(_ADAPTERS))


def get_engine(name: str) -> Engine:
    """The adapter of that name. EngineError for any other."""
    if name not in _ADAPTERS:
        raise EngineError(f"there is no engine {name!r}; there are {', '.join(engine_names())}")
    module, adapter = _ADAPTERS[name].split(":")
    engine: Engine = getattr(import_module(module), adapter)()
    return engine
