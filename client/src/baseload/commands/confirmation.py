"""The question before a command ends or removes more than the one thing that was named."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from baseload.commands.session import MistakeError

Yes = Annotated[bool, typer.Option("--yes", "-y", help="do not ask")]


def confirm(question: str, *, yes: bool) -> None:
    """Ask a person, unless `yes` says that it is meant.

    Raises: MistakeError, when the person says no, or nobody can be asked.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise MistakeError(f"{question} Nobody can be asked here: say --yes")
    if not typer.confirm(question, err=True):
        raise MistakeError("nothing was changed")
