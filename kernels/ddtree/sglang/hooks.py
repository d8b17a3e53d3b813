"""What SGLang runs around its own functions for us."""

from collections.abc import Callable
from typing import Any

REQUEST_CHECK = "sglang.srt.speculative.dflash_utils.validate_dflash_request"


def refuse_logprobs(checked: Callable[..., str | None], request: Any, *rest: Any, **more: Any) -> str | None:
    """Around SGLang's check of a request: why it is refused. From 0.5.23 on DFlash gives log-probabilities."""
    if request.return_logprob:
        return "DDTREE does not support return_logprob"
    return checked(request, *rest, **more)


def check_hooks() -> None:
    """RuntimeError unless SGLang put `refuse_logprobs` around its check: of a hook that fails it only logs."""
    from sglang.srt.speculative import dflash_utils

    if not hasattr(dflash_utils.validate_dflash_request, "__wrapped__"):
        raise RuntimeError("SGLang did not apply DDTREE's hook: requests for log-probabilities would end the server")
