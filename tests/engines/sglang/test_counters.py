"""Counters from the Prometheus page and from a request's own figures; the stream in OpenAI's shape."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.base import EngineError, SpecCounters
from engines.sglang import metrics, requests

PAGE = """\
# HELP sglang:generation_tokens_total Number of generation tokens processed.
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{engine_type="unified",is_streaming="true",model_name="target"} 96.0
sglang:generation_tokens_total{engine_type="unified",is_streaming="false",model_name="target"} 4.0
sglang:num_requests_total{engine_type="unified",is_streaming="true",model_name="target"} 3.0
sglang:num_requests_total{engine_type="unified",is_streaming="false",model_name="target"} 1.0
sglang:spec_verify_calls_total{engine_type="unified",model_name="target"} 40.0
"""
FINISHED = {"type": "stop", "matched": 0}
TOLD = {"prompt_tokens": 5, "completion_tokens": 30, "cached_tokens": 2, "finish_reason": FINISHED}


def test_plain_decoding_is_a_step_a_token_without_the_prefills() -> None:
    assert metrics.counters(PAGE, speculative=False) == SpecCounters(verify_steps=96, emitted=96)


def test_speculation_has_steps_of_its_own() -> None:
    assert metrics.counters(PAGE, speculative=True) == SpecCounters(verify_steps=40, emitted=96)


@pytest.mark.parametrize("name", ["generation_tokens_total", "num_requests_total", "spec_verify_calls_total"])
def test_a_counter_with_another_name_is_not_zero(name: str) -> None:
    with pytest.raises(EngineError, match=f"SGLang's /metrics has no sglang:{name}"):
        metrics.counters(PAGE.replace(name, "renamed"), speculative=True)


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(7, 63)), min_size=1, max_size=40))
def test_a_request_s_histograms_become_integers(steps: list[tuple[int, int]]) -> None:
    """Each step: drafts accepted, nodes verified without the root."""
    accepted, nodes = [step[0] for step in steps], [step[1] for step in steps]
    figures = {
        "spec_verify_ct": len(steps),
        "spec_num_correct_drafts": sum(accepted),
        "spec_num_proposed_drafts": 63 * len(steps),
        "spec_correct_drafts_histogram": [accepted.count(exactly) for exactly in range(max(accepted) + 1)],
        "spec_cap_lens_histogram": [nodes.count(width - 1) for width in range(max(nodes) + 2)],
    }
    found = requests.counters({"meta_info": TOLD | figures})
    depths = tuple(sum(count > depth for count in accepted) for depth in range(max(accepted)))
    assert found == SpecCounters(len(steps), sum(nodes), sum(accepted), 29, depths)
    del figures["spec_cap_lens_histogram"]
    assert requests.counters({"meta_info": TOLD | figures}).drafted == 63 * len(steps)


def test_a_request_without_verify_steps_was_decoded_plainly_or_ended_with_its_prefill() -> None:
    assert requests.counters({"meta_info": TOLD}) == SpecCounters(verify_steps=29, emitted=29)
    assert requests.counters({"meta_info": TOLD | {"completion_tokens": 1}}) == SpecCounters()
    with pytest.raises(EngineError, match="meta_info cannot be read"):
        requests.counters({"meta_info": TOLD | {"spec_verify_ct": 3}})


def test_the_stream_takes_openai_s_shape() -> None:
    event = {"text": " a", "output_ids": [7, 8], "meta_info": TOLD | {"finish_reason": None}}
    choice = {"index": 0, "delta": {"content": " a"}, "token_ids": [7, 8], "finish_reason": None}
    assert requests.chunk(event) == {"choices": [choice]}
    last = requests.chunk(event | {"meta_info": TOLD})
    assert last["choices"] == [choice | {"finish_reason": "stop"}]
    counts = {"prompt_tokens": 5, "completion_tokens": 30, "total_tokens": 35}
    assert last["usage"] == counts | {"prompt_tokens_details": {"cached_tokens": 2}}
    assert requests.counters(last) == SpecCounters(verify_steps=29, emitted=29)


def test_an_abort_is_an_error_whatever_came_before() -> None:
    finish = {"type": "abort", "message": "too long", "status_code": 400}
    event = {"text": "", "output_ids": [], "meta_info": {"finish_reason": finish}}
    assert requests.chunk(event) == {"error": {"message": "too long"}}
    assert requests.chunk({"error": {"message": "gone"}}) == {"error": {"message": "gone"}}
    with pytest.raises(EngineError, match="an event of SGLang's stream cannot be read"):
        requests.chunk({"choices": []})


def test_a_chat_request_becomes_generate_s() -> None:
    chat = {"model": "target", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9, "seed": 3}
    chat |= {"temperature": 0.7, "top_p": 0.9, "stream": True, "stream_options": {"include_usage": True}}
    assert requests.tokenize_body(chat) == {"model": "target", "messages": chat["messages"]}
    assert requests.generate_body(chat, [1, 2]) == {
        "input_ids": [1, 2],
        "sampling_params": {"max_new_tokens": 9, "temperature": 0.7, "top_p": 0.9, "sampling_seed": 3},
        "stream": True,
    }
    assert requests.generate_body(chat | {"top_k": 20}, [1])["sampling_params"]["top_k"] == 20
    with pytest.raises(EngineError, match="SGLang's tokens cannot be read"):
        requests.token_ids({"tokens": [[1], [2]]})


def test_alternatives_are_ranked() -> None:
    told = {"output_top_logprobs": [[[-1.25, 7, None], [-0.5, 30, " a"]]]}
    found = requests.ranking({"meta_info": told})
    assert (found.token_ids, found.log_probs) == ((30, 7), (-0.5, -1.25))
    with pytest.raises(EngineError, match="cannot be read"):
        requests.ranking({"meta_info": {}})
