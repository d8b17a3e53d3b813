"""Tree attention against torch's own: SDPA with a dense mask, and FlexAttention in every form that may take a tree."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch

import ddtree
from ddtree.bench import attention, checks, data
from ddtree.bench.clock import Call, eager_us, time_us
from ddtree.bench.table import Gap, Limits, guarded, reason_of

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import FlexKernelOptions

POINTS = [(1, 8192, 64), (16, 8192, 64)]
Attend = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Form:
    """Kernel options, rows of queries in a block of the block mask, and the number that queries are padded to."""

    name: str
    options: "FlexKernelOptions"
    block: int = 128
    padded: int = 0


# Below 128 queries torch takes its decoding kernel, whose default tile of all queries x group must divide the mask's
# block: 64 nodes x 4 heads of a group do not divide 128.
FORMS = (
    Form("Flex decoding, tiles of 64", {"BLOCK_M": 64}),
    Form("Flex main kernel", {"FORCE_USE_FLEX_ATTENTION": True}),
    Form("Flex decoding, mask blocks of 256", {}, block=256),
    Form("Flex main kernel, padded to 128", {}, padded=128),
)


def rows(limits: Limits) -> Iterator[attention.Result]:
    """A row for each form, as soon as it is known; what does not run, or is wrong, is a gap with its reason."""
    for batch, context, width in POINTS:
        label = f"batch {batch} context {context} width {width} page 1"
        yield from guarded(f"attention {label}", _point(limits, label, batch, context, width))


def _point(limits: Limits, label: str, batch: int, context: int, width: int) -> Iterator[attention.Result]:
    inputs = attention.cases(batch, context, width)
    makers: dict[str, Callable[[], list[Attend]]] = {"SDPA": lambda: [sdpa(case) for case in inputs]}
    makers |= {form.name: partial(flex, inputs, form) for form in FORMS}
    for name, make in makers.items():
        try:
            runs = make()
            check = checks.attention_error(inputs[0], runs[0], f"{name}, {label}")
            if check.failure:
                raise ArithmeticError(f"error {check.error:.3g}, allowed is {check.allowed:.3g}")
            times = {name: _time(runs)}
        except Exception as error:  # torch's compiler raises what it likes
            yield Gap(f"{name}, {label}", reason_of(error), ours=False)
        else:
            yield attention.row(inputs, label, limits, times)


def _time(calls: Sequence[Call]) -> float:
    """Captured where that is possible."""
    try:
        return time_us(calls, replays=7)
    except RuntimeError:
        torch.cuda.synchronize()
        return eager_us(calls)


def contiguous(case: data.Attention) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(query, keys, values) in torch's layout, all requests of one length; gathering is not timed."""
    at = torch.arange(int(case.prefix_lens[0]), device=case.query.device)
    slots = case.table[:, at // case.page].long() * case.page + at % case.page
    keys = torch.cat([case.key_pool[slots], case.tree_keys], dim=1).transpose(1, 2).contiguous()
    values = torch.cat([case.value_pool[slots], case.tree_values], dim=1).transpose(1, 2).contiguous()
    return case.query.transpose(1, 2).contiguous(), keys, values


def mask_of(case: data.Attention) -> torch.Tensor:
    """bool [B,1,N,prefix+N]."""
    tree = ddtree.ancestor_mask(case.tree)
    return torch.cat([tree.new_ones(*tree.shape[:2], int(case.prefix_lens[0])), tree], dim=2)[:, None]


def sdpa(case: data.Attention) -> Attend:
    """torch's scaled_dot_product_attention with a dense boolean mask over contiguous keys."""
    query, keys, values = contiguous(case)
    mask = mask_of(case)

    def run() -> torch.Tensor:
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(query, keys, values, attn_mask=mask, enable_gqa=True).transpose(1, 2)

    return run


def flex(inputs: Sequence[data.Attention], form: Form) -> list[Attend]:
    """FlexAttention, compiled once, with the block mask of the first input for all, over contiguous keys."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.reset()
    mask = mask_of(inputs[0])
    nodes, length = mask.shape[2:]
    queries = max(nodes, form.padded)
    mask = torch.nn.functional.pad(mask, (0, 0, 0, queries - nodes))

    def allowed(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return mask[b, 0, q, k]

    size = (form.block, 128)
    blocks = create_block_mask(allowed, mask.shape[0], None, queries, length, device=mask.device, BLOCK_SIZE=size)
    compiled = torch.compile(flex_attention, dynamic=False)

    def make(case: data.Attention) -> Attend:
        query, keys, values = contiguous(case)
        query = torch.nn.functional.pad(query, (0, 0, 0, queries - nodes))

        def run() -> torch.Tensor:
            out: torch.Tensor = compiled(
                query, keys, values, block_mask=blocks, enable_gqa=True, kernel_options=form.options
            )
            return out[:, :, :nodes].transpose(1, 2)

        return run

    return [make(case) for case in inputs]
