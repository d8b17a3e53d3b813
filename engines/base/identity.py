"""What a running server says it is, held against what was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engines.base.arms import Arm, Method
from engines.base.deployments import Deployment
from engines.base.errors import IdentityError


@dataclass(frozen=True)
class Identity:
    """What a running server says it is. Stored with every trial.

    `block_size`: tokens of the longest path that a step can draft, the token emitted last included; None where nothing
    can draft.
    """

    engine: str
    version: str
    method: Method
    budget: int | None
    chain: bool
    block_size: int | None
    dtype: str
    device: str
    attention_backend: str
    target_digest: str
    drafter_digest: str | None
    settings: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)


def check_identity(identity: Identity, arm: Arm, deployment: Deployment) -> None:
    """Raise IdentityError where the server's own words differ from what was asked for. The longest context (so that all
    arms answer the same requests) and options are compared with the settings of their names, where there are any."""
    expected = {
        "engine": arm.engine,
        "method": arm.method,
        "budget": arm.budget,
        "chain": arm.chain,
        "target_digest": deployment.target_digest,
        "drafter_digest": deployment.drafter_digest if arm.needs_drafter else identity.drafter_digest,
        "dtype": deployment.dtype,
    }
    pairs: list[tuple[str, object, object]]
    pairs = [(name, getattr(identity, name), value) for name, value in expected.items()]
    told = identity.settings
    asked = {"max_context": deployment.max_context} | dict(arm.options)
    pairs += [(name, told[name], value) for name, value in asked.items() if name in told]
    for name, actual, value in pairs:
        if actual != value:
            raise IdentityError(f"arm {arm.name!r}: the server says {name} = {actual!r}, the arm says {value!r}")
