"""Every kernel on fresh random inputs against float64 or, where results are discrete, against the reference."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

import ddtree
from ddtree.bench import data
from ddtree.bench.laws import law, misplaced
from ddtree.bench.table import Check, Gap, guarded

BFLOAT16, HALF, FLOAT = torch.bfloat16, torch.float16, torch.float32


def all_checks() -> Iterator[Check | Gap]:
    """Lazily, so that each is printed as soon as it is known; one part that breaks leaves the others."""
    topk = _topk((((1, 15, 151936), 16, BFLOAT16), ((3, 7, 49152), 64, FLOAT), ((2, 3, 1000), 256, HALF)))
    yield from guarded("topk", topk)
    yield from guarded("attention", _attention())
    yield from guarded("trees", _trees((1, 15, 63, 64, 255), 32))
    yield from guarded("masks", _masks((16, 65, 256)))
    yield from guarded("acceptance", _acceptance((16, 64, 256)))
    yield from guarded("samples", _samples((6, 64, 49152), (BFLOAT16, FLOAT)))
    yield from guarded("moves", _moves())
    yield from guarded("a captured step", _captured())


def small_checks() -> Iterator[Check]:
    """Every kernel once or twice, few and small shapes: for compute-sanitizer, under which all of it is slow."""
    yield from _topk((((1, 2, 9000), 16, BFLOAT16), ((1, 2, 3000), 64, FLOAT)))
    yield from _trees((15, 70), 2)
    yield from _masks((70,))
    yield from _acceptance((70,))
    yield from _samples((6, 2, 9000), (BFLOAT16,))
    yield from _moves()
    for size, page, nodes, prefixes in ((128, 1, 9, [0, 130]), (128, 16, 65, [300, 1]), (64, 64, 20, [70, 513])):
        case = data.attention(2, prefixes, nodes, heads=8, kv_heads=2, size=size, page=page)
        yield attention_error(case, case.run, f"attention head {size} page {page} nodes {nodes}")
    case = data.attention(1, [3000], 64, heads=8, kv_heads=2, window=100)
    yield attention_error(case, case.run, "attention split, window 100, context 3000")
    case = data.attention(1, [3000], 64, heads=8, kv_heads=2, pool_dtype=torch.float8_e4m3fn)
    yield attention_error(case, case.run, "attention split, float8 pools, context 3000")


def _cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.cpu()
    if hasattr(value, "__dataclass_fields__"):
        return type(value)(**{name: _cpu(item) for name, item in vars(value).items()})
    return value


def _exact(name: str, kernel: object, reference: object) -> Check:
    """Error is the number of fields that differ."""
    got = [kernel] if isinstance(kernel, torch.Tensor) else list(vars(kernel).values())
    want = [reference] if isinstance(reference, torch.Tensor) else list(vars(reference).values())
    pairs = [(g, w) for g, w in zip(got, want, strict=True) if isinstance(g, torch.Tensor)]
    return Check(name, float(sum(not torch.equal(g.cpu(), w.cpu()) for g, w in pairs)), 0.0)


def _close(name: str, got: torch.Tensor, want: torch.Tensor, allowed: float) -> Check:
    error = (got.double() - want.double()).abs().max() / want.double().abs().max()
    return Check(name, float(error), allowed)


def _topk(cases: Sequence[tuple[tuple[int, int, int], int, torch.dtype]]) -> Iterator[Check]:
    for shape, k, dtype in cases:
        rows = data.logits(*shape, dtype=dtype)
        top, exact = ddtree.topk_logprobs(rows, k), rows.double()
        values, order = torch.sort(exact, dim=-1, descending=True, stable=True)
        lse = torch.logsumexp(exact, dim=-1)
        name = f"topk {list(shape)} k={k} {str(dtype).removeprefix('torch.')}"
        yield _exact(f"{name} ids", top.token_ids, order[..., :k].int())
        yield _close(f"{name} log-probs", top.log_probs, values[..., :k] - lse[..., None], 1e-6)
        halves = rows.chunk(2, dim=-1)
        width = halves[0].shape[-1]
        shards = [ddtree.topk_logprobs(half, k, vocab_offset=i * width) for i, half in enumerate(halves)]
        yield _exact(f"{name} merged from shards", ddtree.merge_topk(shards).token_ids, top.token_ids)


def _ties(shape: tuple[int, ...]) -> Iterator[tuple[str, torch.Tensor]]:
    smooth = torch.sort(-torch.rand(shape) * 6, dim=-1, descending=True).values
    yield "smooth", smooth
    yield "quantised", torch.round(smooth)
    yield "certain", torch.where(torch.rand(shape) < 0.5, 0.0, torch.round(smooth)).sort(-1, descending=True).values
    yield "impossible", torch.where(torch.rand(shape) < 0.3, -torch.inf, smooth).sort(-1, descending=True).values
    yield "nan", torch.where(torch.rand(shape) < 0.05, torch.nan, smooth)


def _trees(budgets: Sequence[int], batch: int) -> Iterator[Check]:
    for budget in budgets:
        for kind, rows in _ties((batch, 15, 16)):
            for chain in (False, True):
                ids, roots = torch.randint(0, 1000, rows.shape, dtype=torch.int32), torch.arange(batch)
                ragged = torch.randint(1, budget + 1, (batch,), dtype=torch.int32)
                build = partial(ddtree.build_tree, max_nodes=budget + 1, chain=chain)
                tree = build(rows.cuda(), ids.cuda(), roots.cuda(), ragged.cuda())
                reference = build(rows, ids, roots, ragged)
                yield _exact(f"tree {batch} x budget <= {budget} {kind} chain={chain}", tree, reference)


def _masks(sizes: Sequence[int]) -> Iterator[Check]:
    for nodes in sizes:
        tree = data.tree(4, nodes)
        prefix = torch.tensor([0, 5, 1000, 3], dtype=torch.int32)
        reference = _cpu(tree)
        yield _exact(f"ancestor mask {nodes}", ddtree.ancestor_mask(tree), ddtree.ancestor_mask(reference))
        expected = ddtree.sglang_mask(reference, prefix)
        out = torch.empty(expected.numel(), dtype=torch.uint8, device="cuda")
        yield _exact(f"sglang mask {nodes}", ddtree.sglang_mask(tree, prefix.cuda(), out=out), expected)


def _acceptance(sizes: Sequence[int]) -> Iterator[Check]:
    for nodes in sizes:
        tree = data.tree(64, nodes)
        targets = torch.where(torch.rand(64, nodes, device="cuda") < 0.2, 1, _follow(tree))
        reference = _cpu(tree)
        result = ddtree.accept_greedy(tree, targets)
        yield _exact(f"accept 64 x {nodes}", result, ddtree.accept_greedy(reference, targets.cpu()))


def _samples(shape: tuple[int, int, int], dtypes: Sequence[torch.dtype]) -> Iterator[Check]:
    # The last keeps more tokens than the kernel lists.
    cases = [(0.0, 0, 1.0, 0.0), (1.0, 0, 1.0, 0.0), (0.8, 20, 1.0, 0.0), (1.0, 0, 0.9, 0.0), (0.7, 50, 0.9, 0.05)]
    cases += [(1.0, 8000, 1.0, 0.0)]
    heat, top_k, top_p, min_p = (torch.tensor(column) for column in zip(*cases, strict=True))
    for dtype in dtypes:
        rows, uniforms = data.logits(*shape, dtype=dtype), torch.rand(*shape[:2])
        inputs = (heat, top_k.int(), top_p.float(), min_p.float(), uniforms)
        kind = str(dtype).removeprefix("torch.")
        for joint in (False, True):
            drawn = ddtree.sample_target(rows, *(tensor.cuda() for tensor in inputs), joint=joint).cpu()
            best = ddtree.sample_target(rows[:1].cpu(), *(tensor[:1] for tensor in inputs), joint=joint)
            differ = float((drawn[:1] != best).float().mean())
            yield Check(f"sample argmax {kind} joint={joint}, share that differs", differ, 0.0)
            far = [
                misplaced(law(row, *case, joint), uniform[None], token[None])
                for case, *request in zip(cases[1:], rows[1:].cpu(), uniforms[1:], drawn[1:], strict=True)
                for row, uniform, token in zip(*request, strict=True)
            ]
            yield Check(f"sample 5 settings {kind} joint={joint}, off the law", max(far), 1e-4)


def _moves() -> Iterator[Check]:
    tree = data.tree(4, 64)
    accepted = ddtree.accept_greedy(tree, _follow(tree))
    reference = _cpu(accepted)
    prefix = torch.tensor([3, 0, 50, 7], dtype=torch.int32)
    keys, values = (torch.randn(6, 4, 128, 8, 128, dtype=BFLOAT16) for _ in range(2))
    moved = (keys.cuda(), values.cuda())
    ddtree.compact_kv(*moved, accepted, prefix.cuda())
    ddtree.compact_kv(keys, values, reference, prefix)
    yield _exact("compact_kv keys", moved[0], keys)
    yield _exact("compact_kv values", moved[1], values)
    pools, slots = torch.randn(12, 512, 8, 128, dtype=BFLOAT16), torch.randperm(512)[:256].view(4, 64)
    on_gpu = pools.cuda()
    ddtree.compact_slots(ddtree.PoolTable.of(list(on_gpu)), slots.cuda(), accepted)
    ddtree.compact_slots(ddtree.PoolTable.of(list(pools)), slots, reference)
    yield _exact("compact_slots", on_gpu, pools)
    hidden = torch.randn(4, 64, 4096, dtype=BFLOAT16)
    yield _exact("gather_rows", ddtree.gather_rows(hidden.cuda(), accepted), ddtree.gather_rows(hidden, reference))


def _follow(tree: ddtree.Tree) -> torch.Tensor:
    """Target tokens that agree with the first child of every node."""
    return tree.tokens.gather(1, tree.first_child.clamp(min=0).long())


def _captured() -> Iterator[Check]:
    """A step captured once into buffers and replayed on new inputs, as an engine does it."""
    draft = data.logits(4, 7, 49152)
    roots, prefix = torch.zeros(4, dtype=torch.int32, device="cuda"), torch.zeros(4, dtype=torch.int64, device="cuda")
    tree, accepted = ddtree.Tree.empty(4, 33, 7, "cuda"), ddtree.Acceptance.empty(4, 7, "cuda")
    at, mask = (
        torch.zeros(4, 33, dtype=torch.int64, device="cuda"),
        torch.zeros(1 << 16, dtype=torch.uint8, device="cuda"),
    )

    def step() -> None:
        top = ddtree.topk_logprobs(draft, 8)
        ddtree.build_tree(top.log_probs, top.token_ids, roots, 32, max_nodes=33, out=tree)
        ddtree.positions(tree, prefix, out=at)
        ddtree.sglang_mask(tree, prefix, out=mask)
        ddtree.accept_greedy(tree, _follow(tree), out=accepted)

    step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for round_ in range(3):
        draft.copy_(data.logits(4, 7, 49152))
        prefix.copy_(torch.randint(0, 200, (4,)))
        graph.replay()
        top = ddtree.topk_logprobs(draft, 8)
        want = ddtree.build_tree(top.log_probs.cpu(), top.token_ids.cpu(), roots.cpu(), 32, max_nodes=33)
        yield _exact(f"captured step {round_} tree", tree, want)
        yield _exact(f"captured step {round_} positions", at, ddtree.positions(want, prefix.cpu()))
        rows = ddtree.sglang_mask(want, prefix.cpu())
        yield _exact(f"captured step {round_} mask", mask[: rows.numel()], rows)
        yield _exact(f"captured step {round_} acceptance", accepted, ddtree.accept_greedy(want, _follow(want)))


def attention_error(case: data.Attention, run: Callable[[], torch.Tensor], name: str) -> Check:
    """A tree attention against dense float64."""
    allowed = {BFLOAT16: 1e-2, HALF: 2e-3, FLOAT: 1e-5}[case.query.dtype]
    return _close(name, run(), _dense(case), allowed)


def _dense(case: data.Attention) -> torch.Tensor:
    out = torch.empty(case.query.shape, dtype=torch.float64, device="cuda")
    group = case.query.shape[2] // case.tree_keys.shape[2]
    mask = ddtree.ancestor_mask(case.tree)
    for b, prefix in enumerate(case.prefix_lens.tolist()):
        at = torch.arange(prefix, device="cuda")
        slots = case.table[b, at // case.page].long() * case.page + at % case.page
        keys, values = (
            torch.cat([_rows(pool, slots), own[b].double()]).repeat_interleave(group, 1)
            for pool, own in ((case.key_pool, case.tree_keys), (case.value_pool, case.tree_values))
        )
        seen = torch.cat([mask.new_ones(mask.shape[1], prefix), mask[b]], dim=1)
        if case.window is not None:
            depths = case.tree.depths[b].long()
            seen &= torch.cat([at, prefix + depths])[None, :] > (prefix + depths)[:, None] - case.window
        scores = torch.einsum("nhe,khe->hnk", case.query[b].double(), keys) * case.query.shape[3] ** -0.5
        out[b] = torch.einsum("hnk,khe->nhe", scores.masked_fill(~seen, -torch.inf).softmax(-1), values)
    return out


def _rows(pool: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """Rows in float64. Not every operation takes float8, so that those are picked as bytes."""
    picked = pool.view(torch.uint8)[slots].view(pool.dtype) if pool.element_size() == 1 else pool[slots]
    return picked.double()


def _attention() -> Iterator[Check]:
    ragged = [0, 1, 63, 64, 1500]
    kinds = [(BFLOAT16, 64, 16, 65), (BFLOAT16, 96, 16, 65), (BFLOAT16, 256, 16, 65), (HALF, 128, 16, 65)]
    kinds += [(BFLOAT16, 128, 1, 65), (BFLOAT16, 128, 16, 8), (BFLOAT16, 128, 64, 128), (BFLOAT16, 128, 64, 255)]
    for dtype, size, page, nodes in kinds:
        case = data.attention(5, ragged, nodes, size=size, page=page, dtype=dtype)
        kind = str(dtype).removeprefix("torch.")
        yield attention_error(case, case.run, f"attention {kind} head {size} page {page} nodes {nodes} ragged")
    for heads, kv_heads, window in ((32, 8, 100), (8, 8, None), (16, 1, None), (9, 3, 4096)):
        case = data.attention(3, [9000, 30, 2000], 64, heads=heads, kv_heads=kv_heads, window=window)
        yield attention_error(case, case.run, f"attention heads {heads}/{kv_heads} window {window} context 9000")
    case = data.attention(2, [300, 77], 33, size=64, dtype=FLOAT)
    yield attention_error(case, case.run, "attention float32 head 64")
    for pool_dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        for size, page, nodes in ((128, 1, 65), (128, 64, 16), (64, 16, 33)):
            case = data.attention(5, ragged, nodes, size=size, page=page, pool_dtype=pool_dtype)
            kind = str(pool_dtype).removeprefix("torch.")
            yield attention_error(case, case.run, f"attention {kind} pools head {size} page {page} nodes {nodes}")
