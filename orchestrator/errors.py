"""Errors that reach the user as one line. Everything else is a fault of ours and keeps its traceback."""


class InputError(Exception):
    """Bad input: the message says where and what is allowed. The command ends with exit code 2."""


class ModelMissingError(InputError):
    """A model that has to be fetched first; the message names the command that does it."""
