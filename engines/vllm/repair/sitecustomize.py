"""Mends DFlash in vLLM's CPU build; Python runs this at the start of every process that has the folder on its path.

vLLM normalises the context keys of all draft layers in one call of rms_norm with a weight for each layer (vllm#46761).
The CPU kernel takes the first layer's weight for all of them (seen in 0.32.0), as XPU's did until vllm#56431. Here each
layer is normalised by a call of its own, as that fix does. Standard library only until vLLM imports the model.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

MODULE = "vllm.model_executor.models.qwen3_dflash"


class Mender(MetaPathFinder):
    """Mends the module when it is imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != MODULE:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def executed(module: ModuleType) -> None:
                execute(module)
                mend(module)

            spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


def mend(module: Any) -> None:
    """An AttributeError here ends the server: a version that has changed must not pass for a mended one."""

    def normalise(self: Any, keys: Any) -> Any:
        normed = keys.new_empty(keys.shape)
        for layer, weight in enumerate(self._k_norm_weights):
            module.ops.rms_norm(normed[layer], keys[layer], weight, self._rms_norm_eps)
        return normed

    module.DFlashQwen3Model._normalize_context_k  # noqa: B018 - it must exist
    module.DFlashQwen3Model._normalize_context_k = normalise
    sys.stderr.write(f"orchestrate: {MODULE} normalises context keys layer by layer\n")


sys.meta_path.insert(0, Mender())
