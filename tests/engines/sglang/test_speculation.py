"""The adapter's words are the plugin's."""

from __future__ import annotations

from ddtree.sglang import settings
from engines.base import Method
from engines.sglang import speculation


def test_what_an_arm_may_say_is_what_the_plugin_takes() -> None:
    allowed = speculation.OPTIONS[Method.DDTREE]
    assert allowed["prefill_attention_backend"] == speculation.Choice(settings.PREFILL)
    assert allowed["attention"] == speculation.Choice(settings.ATTENTION)
    assert speculation.DDTREE_BACKEND == settings.BACKEND
