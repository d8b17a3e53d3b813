"""A linear layer whose weight is packed once for the machine that multiplies by it."""

import torch
import torch.nn.functional as F
from torch import Tensor

PACK_ROWS = 32
"""Row count oneDNN packs weights for. Packed for 32, widths 1 to 128 all run well (packed for 1, float32 does not), and
no verify width needs padding: plain float32 linears are slower at widths 2..7 than at 8, packed ones are not."""


class Linear:
    """x [R, in] -> x W^T + b [R, out]; on a CPU with oneDNN the weight is kept in oneDNN's blocked layout.

    Packing makes single-row bfloat16 products 1.5 to 1.8 times and float32 ones 2 times as fast (Zen 4, 2 cores).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.out_features, self.in_features = weight.shape
        self._bias = bias
        self._packed = _can_pack(weight)
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, PACK_ROWS) if self._packed else weight

    def __call__(self, x: Tensor) -> Tensor:
        if self._packed:
            product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
            return product
        return F.linear(x, self._weight, self._bias)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """residual + x W^T + b, one kernel where packed."""
        if self._packed:
            total: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, residual, self._weight, self._bias, "add")
            return total
        return F.linear(x, self._weight, self._bias).add_(residual)


def _can_pack(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float32
