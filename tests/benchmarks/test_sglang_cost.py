"""What a server's name means, and what the servers have room for."""

import argparse
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks.sglang import cost


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ar", {"attention_backend": "triton"}),
        ("dflash@fa3", {"attention_backend": "fa3"}),
        ("ddtree-63", {"prefill_attention_backend": "triton"}),
        ("ddtree-63@fa3", {"prefill_attention_backend": "fa3"}),
        ("chain-15", {"prefill_attention_backend": "triton"}),
        ("auto-63@fa3", {"prefill_attention_backend": "fa3", "policy": "auto"}),
    ],
)
def test_a_name_says_the_attention_and_the_shape(
    name: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "Server", lambda subject, *_: subject)
    found = cast(Any, cost._server(name, cast(cost.Place, None), 1))
    assert (found.name, found.options, found.chain) == (name, options, name == "chain-15")


def test_the_servers_run_the_largest_batch_at_once(tmp_path: Path) -> None:
    options = argparse.Namespace(
        work=tmp_path, shape="small", batches=[4, 1, 32], contexts=[1024, 8192], most=40_000, tp=1
    )
    arguments = " ".join(cost._place(options).arguments)
    assert f"--max-total-tokens {32 * (1024 + 256 + 512 + 64)} " in arguments, "4 of 8k need fewer"
    assert arguments.endswith("--cuda-graph-bs-decode 1 4 32 --min-free-slots-delay 1")
    assert cost._points(options) == [(4, 1024), (1, 1024), (32, 1024), (4, 8192), (1, 8192)]
