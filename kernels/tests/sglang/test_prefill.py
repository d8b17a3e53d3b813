"""Who prefills, with SGLang's word on the GPU made up."""

import importlib
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

Choose = Callable[..., SimpleNamespace]


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Choose:
    def chosen(hopper: bool = False, flashinfer: bool = False, **given: Any) -> SimpleNamespace:
        module = ModuleType("sglang.srt.utils")
        module.is_hopper_with_cuda_12_3 = lambda: hopper  # type: ignore[attr-defined]
        module.is_flashinfer_available = lambda: flashinfer  # type: ignore[attr-defined]
        for name in ("sglang", "sglang.srt"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.delitem(sys.modules, "ddtree.sglang.prefill", raising=False)
        prefill = importlib.import_module("ddtree.sglang.prefill")
        arguments = SimpleNamespace(**{"prefill_attention_backend": None, "dtype": "auto"} | given)
        for _ in range(2):  # SGLang asks in each of its processes, of arguments that were settled already
            prefill.hand_over(arguments)
        return arguments

    return chosen


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ({"hopper": True, "flashinfer": True}, "fa3"),
        ({"flashinfer": True}, "flashinfer"),
        ({}, "ddtree"),
        ({"hopper": True, "dtype": "float32"}, "ddtree"),
        ({"hopper": True, "prefill_attention_backend": "flashinfer"}, "flashinfer"),
        ({"hopper": True, "prefill_attention_backend": "ddtree"}, "ddtree"),
    ],
)
def test_prefill_is_sglang_s_choice_or_the_user_s_and_verifying_ours(
    choose: Choose, gpu: dict[str, Any], expected: str
) -> None:
    chosen = choose(**gpu)
    assert (chosen.prefill_attention_backend, chosen.speculative_attention_mode) == (expected, "decode")


def test_a_backend_that_stores_the_cache_otherwise_is_refused(choose: Choose) -> None:
    with pytest.raises(ValueError, match=r"with ddtree, fa3, flashinfer, triton, not --prefill-.*'trtllm_mha'"):
        choose(prefill_attention_backend="trtllm_mha")
