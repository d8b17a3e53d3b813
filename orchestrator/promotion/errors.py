"""How a promotion ends when it does not succeed."""


class PromotionError(Exception):
    """A step failed and was undone, or could not be. The message is one line; the command ends with exit code 6."""
