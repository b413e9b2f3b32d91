"""The snippets of all documents: their blocks of code, and the commands inside of their sentences.

A block that is not run says why in a comment on the line before it: `<!-- not run: the reason -->`.
"""

import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from workers.runner.settings import CHECKOUT

SHELL = ("", "sh", "bash", "console")
_FENCE = re.compile(r"^ *```(?P<language>\w*)")
_NOT_RUN = re.compile(r"<!-- not run: (?P<reason>.+) -->")
_SPAN = re.compile(r"`([^`]+)`")
_RESULTS = re.compile(r"^tests/\w+/RESULTS\.md$|^CHANGELOG\.md$")
"""What says what once was: commands of an earlier release may stand there."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a document."""

    document: str
    line: int
    language: str
    text: str
    not_run: str | None
    """Why the block is not run; None: it is."""

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"


@dataclass(frozen=True)
class Command:
    """One command that a reader is told to type, or is told about."""

    place: str
    words: tuple[str, ...]


def documents() -> list[str]:
    """The paths of all documents of the repository."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    found = subprocess.run(listed, cwd=CHECKOUT, capture_output=True, check=True, text=True)
    return [path for path in found.stdout.splitlines() if not _RESULTS.match(path)]


def blocks(document: str) -> Iterator[Block]:
    """The blocks of one document, in their order."""
    lines = (CHECKOUT / document).read_text().splitlines()
    began: int | None = None
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence is None:
            continue
        if began is None:
            began, language = number, fence["language"]
            continue
        before = next((each for each in reversed(lines[:began]) if each.strip()), "")
        reason = _NOT_RUN.search(before)
        text = "\n".join(lines[began + 1 : number]) + "\n"
        yield Block(document, began + 1, language, text, reason and reason["reason"])
        began = None


def commands(document: str) -> Iterator[Command]:
    """All commands of one document that begin with a program of ours, `make` or `python`."""
    for block in blocks(document):
        if block.language in SHELL:
            yield from _of_shell(block.place, block.text)
    outside = _without_blocks((CHECKOUT / document).read_text())
    for number, paragraph in outside:
        for span in _SPAN.findall(paragraph):
            yield from _of_shell(f"{document}:{number}", span.replace("\n", " "))


def _of_shell(place: str, text: str) -> Iterator[Command]:
    for line in text.replace("\\\n", " ").splitlines():
        for part in re.split(r"&&|\|\||;|\|", line):
            try:
                words = shlex.split(part, comments=True)
            except ValueError:  # A quote that ends on another line, or an apostrophe.
                continue
            while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
                words = words[1:]
            words = [word for word in words if word != "…"]
            if len(words) > 1 and (words[0] in ("make", "python") or is_baseload(words[0])):
                yield Command(place, tuple(words))


def is_baseload(word: str) -> bool:
    """Whether a word of a command line names the client's command."""
    return Path(word).name == "baseload" and word in ("baseload", ".venv/bin/baseload")


def _without_blocks(text: str) -> Iterator[tuple[int, str]]:
    """The paragraphs outside of blocks, each with the number of its first line."""
    inside, started, held = False, 1, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if _FENCE.match(line):
            inside = not inside
        elif not inside and line.strip():
            if not held:
                started = number
            held.append(line)
            continue
        if held:
            yield started, "\n".join(held)
            held = []
