"""What can be wrong with a model."""

from orchestrator.errors import InputError


class ModelError(InputError):
    """The model cannot be had, or is not what it should be. One line, with the way out where there is one."""


class FetchInterruptedError(ModelError):
    """The user stopped a fetch. Nothing of it is left."""
