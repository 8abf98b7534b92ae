"""Names for replies. Knows no request."""

import secrets


def completion_id() -> str:
    """A new id of a completion, not guessable, because it can cancel its request."""
    return f"cmpl-{secrets.token_hex(16)}"


def chat_id() -> str:
    """A new id of a chat completion."""
    return f"chatcmpl-{secrets.token_hex(16)}"
