"""The tree of commands, of which only the module of the given command is loaded."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from baseload.commands.command_index import entries


class LazyGroup(TyperGroup):
    """A group of commands that imports a command's module, by the index, when it is run."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the name of its base
        return list(entries())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = entries().get(cmd_name)
        if entry is None:
            near = get_close_matches(cmd_name, entries(), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else " See baseload --help."
            return ctx.fail(f"No such command {cmd_name!r}.{hint}")
        module = import_module(f"baseload.commands.{entry.module}")
        group = get_group(module.app)
        if not entry.is_group:
            return group.commands[cmd_name]
        group.name, group.help = cmd_name, entry.help
        return group


def new_app() -> typer.Typer:
    """A group of commands, with plain help and plain errors."""
    return typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def run() -> None:
    """Run the command in `sys.argv`, and leave with its exit code."""
    root = typer.Typer(
        cls=LazyGroup,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    root.callback()(_root)
    root(prog_name="baseload")


def _root() -> None:
    """Machines you own, in your cloud, and rented by the hour, as one pool for your jobs."""
