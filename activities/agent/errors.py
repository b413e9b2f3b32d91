"""What the agent answers when it will not or cannot do what it was asked."""

from __future__ import annotations


class RefusedError(Exception):
    """An answer `{"ok": false}`: `code` is stable and for programs, `message` is for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
