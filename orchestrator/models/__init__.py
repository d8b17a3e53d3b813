"""Models: names, where they come from, where they are kept, and the digest that says what they are."""

from engines.digests import digest
from engines.progress import Progress
from orchestrator.errors import ModelMissingError
from orchestrator.models.errors import FetchInterruptedError, ModelError
from orchestrator.models.resolution import ModelEntry, ResolvedModel, fetch, known, resolve
from orchestrator.models.store import State

__all__ = [
    "FetchInterruptedError",
    "ModelEntry",
    "ModelError",
    "ModelMissingError",
    "Progress",
    "ResolvedModel",
    "State",
    "digest",
    "fetch",
    "known",
    "resolve",
]
