"""What needs no SGLang of the hooks."""

from types import SimpleNamespace

from ddtree.sglang.hooks import refuse_logprobs


def test_requests_for_log_probabilities_are_refused_and_others_left_to_sglang() -> None:
    def sglangs(request: SimpleNamespace, overlap: bool) -> str | None:
        return f"no hidden states, overlap {overlap}" if request.return_hidden_states else None

    plain = SimpleNamespace(return_logprob=False, return_hidden_states=False)
    hidden = SimpleNamespace(return_logprob=False, return_hidden_states=True)
    scored = SimpleNamespace(return_logprob=True, return_hidden_states=False)
    assert refuse_logprobs(sglangs, plain, True) is None
    assert refuse_logprobs(sglangs, hidden, overlap=True) == "no hidden states, overlap True"
    assert refuse_logprobs(sglangs, scored, True) == "DDTREE does not support return_logprob"
