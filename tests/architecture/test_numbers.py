"""The style's hard limits, and the handlers that would hide a fault."""

from __future__ import annotations

import ast

from tests.architecture.source import LAYERS, sources

OURS = (*LAYERS, "tests", "client/src")
FUNCTION_LINES = 70
FILE_LINES = 500
LIFECYCLE_LINES = 700
NAMES_THAT_SAY_NOTHING = {"utils", "util", "helpers", "helper", "manager", "common", "data", "misc"}


def test_no_function_is_longer_than_the_limit() -> None:
    wrong = []
    for source in sources(*OURS):
        for function in source.functions():
            lines = (function.end_lineno or function.lineno) - function.lineno + 1
            if lines > FUNCTION_LINES:
                wrong.append(f"{source.name}:{function.lineno}: {function.name}: {lines} lines")
    assert not wrong, "\n".join(wrong)


def test_no_file_is_longer_than_the_limit() -> None:
    long = [
        f"{source.name}: {source.text.count(chr(10))} lines"
        for source in sources(*OURS)
        if source.text.count("\n")
        > (LIFECYCLE_LINES if source.name.endswith("_lifecycle.py") else FILE_LINES)
    ]
    assert not long, "\n".join(long)


def test_every_handler_names_what_it_handles() -> None:
    bare = [
        f"{source.name}:{node.lineno}"
        for source in sources(*OURS)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]
    assert not bare, "\n".join(bare)


def test_no_file_has_a_name_that_says_nothing() -> None:
    named = [
        source.name
        for source in sources(*OURS)
        if set(source.name.removesuffix(".py").split("/")) & NAMES_THAT_SAY_NOTHING
    ]
    assert not named, "\n".join(named)


def test_nothing_is_left_to_do_later() -> None:
    marks = ("TO" + "DO", "FIX" + "ME", "X" + "XX:")
    left = [
        f"{source.name}:{number}"
        for source in sources(*OURS)
        for number, line in enumerate(source.text.splitlines(), 1)
        if any(mark in line for mark in marks)
    ]
    assert not left, "\n".join(left)


def test_every_folder_with_more_than_five_files_opens_with_a_readme() -> None:
    from tests.architecture.source import ROOT

    folders = {(ROOT / source.name).parent for source in sources(*LAYERS)}
    without = [
        folder.relative_to(ROOT).as_posix()
        for folder in sorted(folders)
        if len([file for file in folder.glob("*.py") if file.name != "__init__.py"]) > 5
        and "migrations" not in folder.parts
        and not (folder / "README.md").exists()
    ]
    assert not without, "\n".join(without)
