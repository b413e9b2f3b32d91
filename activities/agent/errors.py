"""The refusals of the agent."""

from __future__ import annotations


class RefusedError(Exception):
    """A refusal, the answer `{"ok": false}`: a stable `code` for programs, a message for people.

    output: what a program has said that the refusal is about, for the log of the run.
    """

    def __init__(self, code: str, message: str, output: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.output = output
