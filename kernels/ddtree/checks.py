"""Input checks from shapes, dtypes and devices only, so that they never wait for a GPU."""

from collections.abc import Sequence

import torch

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
INTEGERS = (torch.int32, torch.int64)


def require(condition: bool, message: str) -> None:
    """Raise ValueError(message) unless the condition holds."""
    if not condition:
        raise ValueError(message)


def require_whole(**numbers: object) -> None:
    """A count that is none would be cut, or compared, somewhere inside."""
    for name, number in numbers.items():
        require(hasattr(type(number), "__index__"), f"{name} is {number!r}, allowed is a whole number")


def require_contiguous(**tensors: torch.Tensor) -> None:
    """For kernels that read their small arguments without strides."""
    for name, tensor in tensors.items():
        require(tensor.is_contiguous(), f"{name} has strides {list(tensor.stride())}, allowed on CUDA is contiguous")


def require_tensor(
    name: str, tensor: torch.Tensor, shape: Sequence[int | None], dtypes: Sequence[torch.dtype], device: torch.device
) -> None:
    """Check rank, sizes (None allows any), dtype and device of one argument."""
    wanted = "[" + ", ".join("any" if size is None else str(size) for size in shape) + "]"
    fits = tensor.dim() == len(shape) and all(w is None or w == s for w, s in zip(shape, tensor.shape, strict=True))
    require(fits, f"{name} has shape {list(tensor.shape)}, allowed is {wanted}")
    names = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
    require(tensor.dtype in dtypes, f"{name} has dtype {tensor.dtype}, allowed are {names}")
    require(tensor.device == device, f"{name} is on {tensor.device}, the other arguments are on {device}")


def require_buffer(
    name: str, tensor: torch.Tensor, shape: Sequence[int], dtype: torch.dtype, device: torch.device
) -> None:
    """Check a tensor that is written in place: contiguous, and exactly of this shape and dtype."""
    require_tensor(name, tensor, shape, (dtype,), device)
    require(tensor.is_contiguous(), f"{name} has strides {list(tensor.stride())}, allowed is contiguous")
