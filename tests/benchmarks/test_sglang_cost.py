"""What a server's name means."""

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
