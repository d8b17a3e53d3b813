"""Tree attention against dense float64, on the reference and on the kernel."""

import dataclasses

import pytest
import torch

import ddtree


def dense(case: dict, window: int | None) -> torch.Tensor:
    """Every key that a node may see, listed by walking parents, in float64."""
    query, tree, out = case["query"].double(), case["tree"], torch.zeros_like(case["query"], dtype=torch.float64)
    group = query.shape[2] // case["tree_keys"].shape[2]
    for b, prefix in enumerate(case["prefix_lens"].tolist()):
        for n in range(query.shape[1]):
            chain, at = [], n
            while at >= 0:
                chain.append(at)
                at = int(tree.parents[b, at])
            depth = int(tree.depths[b, n])
            places = [int(case["slots"][b][p]) for p in range(prefix) if not window or p > prefix + depth - window]
            chain = [c for c in chain if not window or depth - int(tree.depths[b, c]) < window]
            keys = torch.cat([case["key_pool"][places].double(), case["tree_keys"][b, chain].double()])
            values = torch.cat([case["value_pool"][places].double(), case["tree_values"][b, chain].double()])
            for h in range(query.shape[2]):
                weights = (keys[:, h // group] @ query[b, n, h] * query.shape[3] ** -0.5).softmax(0)
                out[b, n, h] = weights @ values[:, h // group]
    return out


def make(tree_of, *, nodes=7, prefix=(37, 0, 70), heads=(4, 2), size=16, page=1, dtype=torch.float32, seed=0) -> dict:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    batch, (query_heads, kv_heads) = len(prefix), heads
    pages = max(1, -(-max(prefix) // page))
    table = torch.randperm(batch * pages + 3, generator=generator)[: batch * pages].view(batch, pages).int()
    pool = (batch * pages + 3) * page
    at = torch.arange(pages * page)
    return {
        "query": normal(batch, nodes, query_heads, size),
        "tree_keys": normal(batch, nodes, kv_heads, size),
        "tree_values": normal(batch, nodes, kv_heads, size),
        "key_pool": normal(pool, kv_heads, size),
        "value_pool": normal(pool, kv_heads, size),
        "table": table,
        "prefix_lens": torch.tensor(prefix, dtype=torch.int32),
        "tree": tree_of(seed, batch, 5, 4, nodes - 2, nodes),
        "slots": table[:, at // page].long() * page + at % page,
    }


def arguments(case: dict) -> list:
    names = ("query", "tree_keys", "tree_values", "key_pool", "value_pool", "table", "prefix_lens", "tree")
    return [case[name] for name in names]


def poison(case: dict) -> dict:
    """NaN wherever no request has a position: reading it must not matter."""
    used = torch.zeros(len(case["key_pool"]), dtype=torch.bool)
    for b, prefix in enumerate(case["prefix_lens"].tolist()):
        used[case["slots"][b, :prefix]] = True
    for name in ("key_pool", "value_pool"):
        case[name][~used] = torch.nan
    return case


SHAPES = [
    {},
    {"page": 16},
    {"page": 64, "prefix": (130, 64, 1)},
    {"nodes": 70, "prefix": (5, 33)},
    {"heads": (8, 1), "size": 64},
    {"heads": (3, 3), "size": 96, "nodes": 3, "dtype": torch.float16},
    {"size": 128, "prefix": (40,), "dtype": torch.float16},
    {"size": 256, "prefix": (33,), "heads": (2, 1), "nodes": 4, "dtype": torch.float16},
]


@pytest.mark.parametrize("window", [None, 3, 40])
@pytest.mark.parametrize("shape", SHAPES[:4])
def test_reference_equals_float64(tree_of, shape, window):
    case = poison(make(tree_of, **shape))
    page = shape.get("page", 1)
    out = ddtree.tree_attention(*arguments(case), page_size=page, window=window)
    torch.testing.assert_close(out.double(), dense(case, window), atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_kernel_equals_float64(by_kernel, tree_of, shape):
    case = poison(make(tree_of, **shape))
    out = by_kernel(ddtree.tree_attention, *arguments(case), page_size=shape.get("page", 1))
    tolerance = 2e-3 if out.dtype == torch.float16 else 5e-6
    torch.testing.assert_close(out.double(), dense(case, None), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("window", [1, 3, 40])
def test_kernel_with_a_window(by_kernel, tree_of, window):
    case = poison(make(tree_of, prefix=(150, 2), nodes=9))
    out = by_kernel(ddtree.tree_attention, *arguments(case), window=window)
    torch.testing.assert_close(out.double(), dense(case, window), atol=5e-6, rtol=1e-5)


@pytest.mark.parametrize("splits", [1, 2, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_number_of_splits(by_kernel, tree_of, splits, dtype):
    from ddtree.triton import attention
    from ddtree.triton.schedule import Config

    if dtype == torch.bfloat16 and not torch.cuda.is_available():
        pytest.skip("the interpreter multiplies the bits of bfloat16 as integers")
    case = poison(make(tree_of, prefix=(100, 0, 7, 64), dtype=dtype))
    config = Config(16, 32, 4, 1, 1)

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        return attention.tree_attention(*tensors, 1, None, 0.25, None, 4096, config, splits)

    out = by_kernel(run, *arguments(case))
    assert out.dtype == dtype
    tolerance = {torch.float32: 5e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}[dtype]
    torch.testing.assert_close(out.double(), dense(case, None), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8_pools(by_kernel, tree_of, dtype):
    case = make(tree_of, prefix=(40, 70), dtype=torch.float16)
    case["key_pool"], case["value_pool"] = case["key_pool"].to(dtype), case["value_pool"].to(dtype)
    expected = ddtree.tree_attention(*arguments(case))
    torch.testing.assert_close(expected.double(), dense(case, None), atol=2e-3, rtol=2e-3)
    out = by_kernel(ddtree.tree_attention, *arguments(case))
    torch.testing.assert_close(out, expected, atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("flat", [False, True])
def test_table_rows_can_be_named(by_kernel, tree_of, flat):
    case = make(tree_of, prefix=(20, 31))
    expected = ddtree.tree_attention(*arguments(case))
    table, rows = torch.zeros(5, 40, dtype=torch.int32), torch.tensor([3, 1])
    table[rows, :31] = case["table"]
    if flat:
        table, rows = table.flatten(), rows * 40
    case["table"] = table
    torch.testing.assert_close(ddtree.tree_attention(*arguments(case), rows=rows), expected)
    torch.testing.assert_close(by_kernel(ddtree.tree_attention, *arguments(case), rows=rows), expected)


def test_strided_inputs(by_kernel, tree_of):
    case = make(tree_of)
    fused = torch.randn(3, 7, 4 + 2 + 2, 16)
    case["query"], case["tree_keys"], case["tree_values"] = fused.split([4, 2, 2], dim=2)
    out = by_kernel(ddtree.tree_attention, *arguments(case))
    torch.testing.assert_close(out.double(), dense(case, None), atol=5e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("programs", "tiles", "block_m", "expected"),
    [(8, 512, 64, 16), (1024, 512, 64, 1), (8, 8, 64, 4), (1, 1, 64, 1), (192, 32, 128, 2), (8, 4, 256, 1)],
)
def test_splits_fill_the_gpu_where_merging_costs_less(programs, tiles, block_m, expected):
    from ddtree.triton.schedule import Config, splits_of

    assert splits_of(programs, 132, tiles, Config(block_m, 64, 8, 5, 1)) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": torch.zeros(3, 7, 4)}, r"query has shape \[3, 7, 4\]"),
        ({"query": torch.zeros(3, 7, 5, 16)}, "5 query heads are no multiple of 2 KV heads"),
        ({"tree_values": torch.zeros(3, 6, 2, 16)}, "tree_values has shape"),
        ({"key_pool": torch.zeros(10, 2, 16, dtype=torch.float64)}, "key_pool has dtype"),
        ({"table": torch.zeros(2, 9, dtype=torch.int32)}, "table has 2 rows, the batch needs 3"),
        ({"table": torch.zeros(9, dtype=torch.int32)}, "a one-dimensional table needs `rows`"),
        ({"table": torch.zeros(3, 9)}, "table has dtype"),
    ],
)
def test_bad_input_is_named(tree_of, change, message):
    with pytest.raises(ValueError, match=message):
        ddtree.tree_attention(*arguments({**make(tree_of), **change}))


def test_bad_options_are_named(tree_of):
    case = arguments(make(tree_of))
    for option in ("window", "page_size", "longest"):
        for value, allowed in ((0, "1 or more"), (2.5, "a whole number")):
            with pytest.raises(ValueError, match=f"{option} is {value}, allowed is {allowed}"):
                ddtree.tree_attention(*case, **{option: value})


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"prefix_lens": torch.tensor([3, 71, 1])}, {}, "prefix_lens of request 1 is 71, its table holds 70 positions"),
        ({"prefix_lens": torch.tensor([-1, 0, 1])}, {}, "prefix_lens of request 0 is -1"),
        ({"table": torch.full((3, 70), -1)}, {}, "the table of request 0 names a slot outside of the pool of 213"),
        ({"table": torch.full((3, 70), 213)}, {}, "names a slot outside of the pool of 213"),
        ({}, {"rows": torch.tensor([0, 1, 3])}, "rows of request 2 is 3, the table has 3"),
    ],
)
def test_places_outside_of_table_and_pool_are_named(tree_of, change, options, message):
    with pytest.raises(ValueError, match=message):
        ddtree.tree_attention(*arguments({**make(tree_of), **change}), **options)


def test_a_mask_that_is_no_tree_is_refused(tree_of):
    case = make(tree_of)
    full = torch.full_like(case["tree"].ancestors, 0b1111111)
    case["tree"] = dataclasses.replace(case["tree"], ancestors=full)
    with pytest.raises(ValueError, match="are not a tree's"):
        ddtree.tree_attention(*arguments(case))
    with pytest.raises(ValueError, match="are not a tree's"):
        ddtree.sglang_mask(case["tree"], case["prefix_lens"])
