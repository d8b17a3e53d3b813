"""What is asked of a server's own words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.base import Arm, Identity, IdentityError, Method, check_identity
from tests.engines.vllm.acting import deployment

IDENTITY = Identity(
    engine="e",
    version="1",
    method=Method.DDTREE,
    budget=15,
    chain=False,
    block_size=8,
    dtype="float32",
    device="cpu",
    attention_backend="target's",
    target_digest="t",
    drafter_digest="d",
    settings={"policy": "auto", "topk": 4},
)
ARM = Arm("tree", "e", Method.DDTREE, budget=15)


def test_options_are_compared_with_the_settings_of_their_names() -> None:
    check_identity(IDENTITY, replace(ARM, options={"policy": "auto", "topk": 4}), deployment())
    with pytest.raises(IdentityError, match="arm 'tree': the server says topk = 4, the arm says 5"):
        check_identity(IDENTITY, replace(ARM, options={"policy": "auto", "topk": 5}), deployment())


def test_an_option_that_no_setting_tells_of_is_not_compared() -> None:
    check_identity(IDENTITY, replace(ARM, options={"attention_backend": "the drafter's"}), deployment())


def test_arms_that_answer_other_requests_are_refused() -> None:
    asked = deployment().max_context
    check_identity(replace(IDENTITY, settings={"max_context": asked}), ARM, deployment())
    with pytest.raises(IdentityError, match=f"the server says max_context = {asked - 4}, the arm says {asked}"):
        check_identity(replace(IDENTITY, settings={"max_context": asked - 4}), ARM, deployment())


@pytest.mark.parametrize(
    ("field", "value"), [("method", Method.DFLASH), ("budget", 7), ("chain", True), ("dtype", "float16")]
)
def test_a_server_that_is_something_else_is_refused(field: str, value: object) -> None:
    with pytest.raises(IdentityError, match=f"arm 'tree': the server says {field} = "):
        check_identity(replace(IDENTITY, **{field: value}), ARM, deployment())
