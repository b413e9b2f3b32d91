"""`baseload completion`: the script by which a shell completes commands, options and jobs.

The script asks this command for each completion; typer has the protocol of each shell.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.command_index import COMPLETION
from baseload.commands.session import Session, command

app = new_app()


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@command(app)
def completion(session: Session, shell: Annotated[Shell, typer.Argument()]) -> None:
    """Print the completion script of a shell.

    bash: eval "$(baseload completion bash)" in ~/.bashrc; zsh: the same in ~/.zshrc, after
    compinit; fish: baseload completion fish > ~/.config/fish/completions/baseload.fish
    """
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="baseload", complete_var=COMPLETION, shell=shell.value)
    if session.screen.as_json:
        session.screen.json({"shell": shell.value, "script": script})
    else:
        print(script)
