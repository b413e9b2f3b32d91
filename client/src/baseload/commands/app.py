"""The tree of commands, of which only the module of the given command is loaded."""

from __future__ import annotations

import os
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from baseload.commands.command_index import COMPLETION, entries


class LazyGroup(TyperGroup):
    """A group of commands that imports a command's module, by the index, when it is run."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the name of its base
        return list(entries())

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """The commands that begin so, by the index, which imports none of them."""
        words = [name for name in entries() if incomplete and name.startswith(incomplete)]
        if incomplete and not words:
            return super().shell_complete(ctx, incomplete)
        try:
            from typer._completion_classes import CompletionItem  # type: ignore[attr-defined]
        except ImportError:  # An older typer takes longer.
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(word) for word in words or entries()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = entries().get(cmd_name)
        if entry is None:
            near = get_close_matches(cmd_name, entries(), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            return ctx.fail(f"No such command {cmd_name!r}.{hint}")
        module = import_module(f"baseload.commands.{entry.module}")
        group = get_group(getattr(module, entry.app))
        if not entry.is_group:
            return group.commands[cmd_name]
        group.name, group.help = cmd_name, _title(module.__doc__ or entry.help)
        return group


def _title(docstring: str) -> str:
    """What a group is about: `Keys to the API.` of a module that says "`baseload key`: keys …"."""
    title = docstring.partition("\n")[0].rpartition("`: ")[2]
    return title[:1].upper() + title[1:]


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
    if COMPLETION in os.environ:
        from typer._completion_classes import completion_init

        completion_init()  # Typer leaves it out without its own options to install a script.
    root.callback()(_root)
    root(prog_name="baseload")


def _root() -> None:
    """Machines you own, in your cloud, and rented by the hour, as one pool for your jobs."""
