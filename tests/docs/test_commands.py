"""Every command that a document names is there, with its options, its target, its module."""

import importlib.util
import re
from typing import Any

import pytest
import typer
from baseload.commands.app import LazyGroup
from baseload.job_reference import reference_text
from typer.main import get_command

from tests.docs.snippets import Command, commands, documents, is_baseload
from workers.runner.settings import CHECKOUT

_TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)


def _client() -> Any:
    root = typer.Typer(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
    root.callback()(lambda: None)
    return get_command(root)


def _wrong_in_baseload(command: Command, client: Any) -> str | None:
    """What the client's own command would not understand; None: nothing."""
    found, rest = client, list(command.words[1:])
    if rest[0] == "help":
        field = "".join(rest[2:])
        is_there = rest[1:2] == ["job"] and (field == "[FIELD]" or reference_text(field))
        return None if is_there else f"no help of {' '.join(rest[1:])}"
    while rest and hasattr(found, "get_command") and not rest[0].startswith("-"):
        name = rest.pop(0)
        context = found.make_context("baseload", [], resilient_parsing=True)
        if name.isupper() or "|" in name or name.startswith("<"):
            return None
        if name not in found.list_commands(context):
            return f"no command {name!r}"
        found = found.get_command(context, name)
    options = {"-h", "--help"}.union(
        *(set(each.opts) | set(each.secondary_opts) for each in found.params)
    )
    ended = rest.index("--") if "--" in rest else len(rest)
    given = [word.partition("=")[0] for word in rest[:ended] if re.match(r"--?[a-z]", word)]
    unknown = [word for word in given if word not in options]
    return f"no option {unknown[0]} of {found.name}" if unknown else None


def _wrong(command: Command, client: Any, targets: set[str]) -> str | None:
    program, first = command.words[0], command.words[1]
    if is_baseload(program):
        return _wrong_in_baseload(command, client)
    if program == "make" and first.isidentifier() | ("-" in first) and "=" not in first:
        return None if first in targets or first.isupper() else f"no target {first!r}"
    if program == "python" and first == "-m" and len(command.words) > 2:
        module = command.words[2]
        is_there = importlib.util.find_spec(module.partition(".")[0]) is not None
        return None if is_there else f"no module {module!r}"
    return None


@pytest.mark.parametrize("document", documents())
def test_every_command_that_a_document_names_is_there(document: str) -> None:
    client = _client()
    targets = set(_TARGET.findall((CHECKOUT / "Makefile").read_text()))
    wrong = [
        f"{command.place}: {' '.join(command.words)}: {reason}"
        for command in commands(document)
        if (reason := _wrong(command, client, targets)) is not None
    ]
    assert wrong == []


def test_a_command_that_is_not_there_is_found() -> None:
    client = _client()
    for words in ("baseload node remove NODE", "baseload ps --nothing", "make nothing"):
        command = Command("here", tuple(words.split()))
        assert _wrong(command, client, {"test"}) is not None, words
    assert _wrong(Command("here", ("baseload", "node", "rm", "NODE")), client, set()) is None
