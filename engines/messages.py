"""What a server says, as one line for the user."""

from __future__ import annotations

import json

_LONGEST = 300


def one_line(text: str) -> str:
    """At most 300 characters without line breaks."""
    return " ".join(text.split())[:_LONGEST]


def error_message(body: str) -> str:
    """The message of an OpenAI-style error body, or the body itself, in one line."""
    try:
        error = json.loads(body)["error"]
        return one_line(str(error["message"] if isinstance(error, dict) else error))
    except (ValueError, KeyError, TypeError):
        return one_line(body)
