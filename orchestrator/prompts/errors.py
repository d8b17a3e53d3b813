"""What can be wrong with prompts."""

from orchestrator.errors import InputError


class PromptError(InputError):
    """The prompts cannot be read or are not enough. The message names file and line where there is one."""
