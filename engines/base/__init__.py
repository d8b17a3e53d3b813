"""What the control plane needs of an engine, and nothing more.

An engine is a server program in an environment of its own. An adapter says how to start it, asks it who it is and
reads its counters over HTTP; it never imports the engine.

This package is entered by its name alone: everything public is in `__all__`, and its modules are its own affair.
"""

from engines.base.arms import Arm, Method
from engines.base.counters import ALL_COUNTS, SpecCounters, StageTimes
from engines.base.deployments import Deployment
from engines.base.engine import Engine
from engines.base.errors import EngineError, IdentityError
from engines.base.identity import Identity, check_identity
from engines.base.tokens import DraftNode, DraftTree, Ranking
from engines.base.wire import OPENAI, Call, Dialect, Endpoint, Place

__all__ = [
    "ALL_COUNTS",
    "OPENAI",
    "Arm",
    "Call",
    "Deployment",
    "Dialect",
    "DraftNode",
    "DraftTree",
    "Endpoint",
    "Engine",
    "EngineError",
    "Identity",
    "IdentityError",
    "Method",
    "Place",
    "Ranking",
    "SpecCounters",
    "StageTimes",
    "check_identity",
]
