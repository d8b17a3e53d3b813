"""What an engine can do wrong. It stands alone, so that every part of the contract can raise it."""


class EngineError(Exception):
    """The engine could not be started, reached or believed. The message is one line for the user."""


class IdentityError(EngineError):
    """The server runs something other than the arm says."""
