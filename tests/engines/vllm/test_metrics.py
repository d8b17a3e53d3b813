"""Counters from the Prometheus page and from a request's own metrics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.base import EngineError, SpecCounters
from engines.vllm import metrics, requests

PLAIN = """\
# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="target"} 100.0
vllm:generation_tokens_created{engine="0",model_name="target"} 1.79e+09
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="target"} 0.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="target"} 4.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="target"} 0.4
"""
SPECULATIVE = (
    PLAIN
    + """\
vllm:spec_decode_num_drafts_total{engine="0",model_name="target"} 40.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="target"} 1.79e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="target"} 80.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="target"} 57.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="target",position="1"} 19.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="target",position="0"} 38.0
vllm:spec_decode_num_accepted_tokens_per_pos_created{engine="0",model_name="target",position="0"} 1.79e+09
"""
)


def test_plain_decoding_is_a_step_a_token_without_the_prefills() -> None:
    assert metrics.counters(PLAIN) == SpecCounters(verify_steps=96, emitted=96)


def test_speculation_is_counted_by_drafts() -> None:
    found = metrics.counters(SPECULATIVE)
    assert found == SpecCounters(40, 80, 57, 96, (38, 19))
    assert found.acceptance_length == 1 + 57 / 40


def test_engines_of_one_server_add_up() -> None:
    second = SPECULATIVE.replace('engine="0"', 'engine="1"')
    assert metrics.counters(SPECULATIVE + second) == SpecCounters(80, 160, 114, 192, (76, 38))


@pytest.mark.parametrize(
    "name", ["vllm:generation_tokens_total", "vllm:time_to_first_token_seconds_count", "vllm:spec_decode_num_draft_tok"]
)
def test_a_counter_with_another_name_is_not_zero(name: str) -> None:
    with pytest.raises(EngineError, match=f"vLLM's /metrics has no {name}"):
        metrics.counters(SPECULATIVE.replace(name, "vllm:renamed"))


@given(st.lists(st.integers(0, 7), min_size=1, max_size=40))
def test_a_histogram_becomes_counts_by_depth(accepted: list[int]) -> None:
    histogram = [accepted.count(exactly) for exactly in range(8)]
    told = {
        "acceptance_histogram": histogram,
        "num_spec_steps": len(accepted),
        "num_accepted_draft_tokens": sum(accepted),
        "num_draft_tokens": 7 * len(accepted),
    }
    chunk = {"usage": {"completion_tokens": 30}, "metrics": {"speculative_decoding": told}}
    found = requests.counters(chunk)
    depths = tuple(sum(count > depth for count in accepted) for depth in range(7))
    assert found == SpecCounters(len(accepted), 7 * len(accepted), sum(accepted), 29, depths)
    assert sum(depths) == sum(accepted)


def test_requests_without_own_counters_say_so() -> None:
    assert requests.counters({"usage": {"completion_tokens": 3}}) is None
    assert requests.counters({"usage": {}, "metrics": {"time_to_first_token_ms": 3.0}}) is None
    with pytest.raises(EngineError, match="cannot be read"):
        requests.counters({"usage": {}, "metrics": {"speculative_decoding": {"acceptance_histogram": [1]}}})


def test_alternatives_are_ranked_by_token_id() -> None:
    logprobs = {"top_logprobs": [{"token_id:7": -1.25, "token_id:30": -0.5}]}
    found = requests.ranking({"choices": [{"logprobs": logprobs}]})
    assert (found.token_ids, found.log_probs) == ((30, 7), (-0.5, -1.25))
    with pytest.raises(EngineError, match="cannot be read"):
        requests.ranking({"choices": [{"logprobs": {"top_logprobs": [{" the": -0.1}]}}]})
