"""The output of commands: results on stdout, everything else on stderr.

Colours, tables with lines and moving progress are only for terminals; elsewhere the output is
plain text, and with `--json` it is JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

GOOD = frozenset({"active", "finished", "healthy", "ready", "running", "ok", "passed"})
BAD = frozenset({"failed", "unreachable", "offline", "lost", "refused"})

COPIED = frozenset({"id", "name", "job"})
"""The columns that people copy from."""
LEAST_WIDTH = 12
"""The characters of a line that a column of texts keeps, however narrow the terminal is."""


class Screen:
    """The output of one command, as text or as JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    @property
    def is_rich(self) -> bool:
        """Whether stdout is a terminal that a person reads."""
        return not self.as_json and sys.stdout.isatty()

    def json(self, document: Any) -> None:
        """One document, for scripts: keys in the API's order, indented."""
        print(json.dumps(document, indent=2, ensure_ascii=sys.stdout.isatty()), flush=True)

    def json_line(self, document: Any) -> None:
        """One of a stream of documents, each on a line of its own."""
        print(json.dumps(document, ensure_ascii=sys.stdout.isatty()), flush=True)

    def say(self, message: str) -> None:
        """Print a line for the person that is not the result."""
        print(printable(message), file=sys.stderr, flush=True)

    def result(self, message: str) -> None:
        print(printable(message), flush=True)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Rows below headings, each on one line; columns line up."""
        if self.is_rich:
            console, table = console_of(sys.stdout), table_of(columns, rows)
            least = sum(column.min_width or 0 for column in table.columns)
            # A line that is too long goes on in the next one: what somebody copies is whole.
            console.width = max(console.width, least + frame_width(len(columns)))
            console.print(table, crop=False)
            return
        shown = [[shown_text(value) for value in row] for row in rows]
        widths = [max(len(text) for text in column) for column in zip(columns, *shown, strict=True)]
        for row in ([name.upper() for name in columns], *shown):
            padded = (text.ljust(width) for text, width in zip(row, widths, strict=True))
            print("  ".join(padded).rstrip())

    def fields(self, pairs: Iterable[tuple[str, Any]]) -> None:
        """Names and values, one a line; what has no value is left out."""
        shown = [(name, printable(_cell(value))) for name, value in pairs if value is not None]
        width = max((len(name) for name, _ in shown), default=0)
        if not self.is_rich:
            for name, text in shown:
                print(f"{name.ljust(width)}  {text}".rstrip())
            return
        from rich.text import Text

        console = console_of(sys.stdout)
        for name, text in shown:
            console.print(Text(name.ljust(width), "dim"), Text(text, _style(text)), sep="  ")


def table_of(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """The table for a terminal. Where it is too narrow, texts give way; ids and names never do."""
    from rich.box import SIMPLE_HEAD
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    shown = [[shown_text(value) for value in row] for row in rows]
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for name, *texts in zip(columns, *shown, strict=True):
        is_whole = name in COPIED or not any(" " in text for text in texts)
        width = max(cell_len(text) for text in (name, *texts))
        least = width if is_whole else min(width, LEAST_WIDTH)
        table.add_column(name, min_width=least, no_wrap=is_whole)
    for row in shown:
        table.add_row(*(Text(text, _style(text)) for text in row))
    return table


def frame_width(columns: int) -> int:
    """The characters of a line of a table of so many columns that are no text."""
    return 3 * columns - 1


def console_of(stream: TextIO) -> Console:
    """A rich console on this stream; it knows whether that is a terminal."""
    from rich.console import Console

    return Console(file=stream, highlight=False, soft_wrap=True)


def credits_text(microcredits: int | None) -> str:
    """Microcredits as credits, exactly: 1265000 is `1.265`."""
    if microcredits is None:
        return "-"
    sign = "-" if microcredits < 0 else ""
    whole, rest = divmod(abs(microcredits), 1_000_000)
    decimals = f"{rest:06d}".rstrip("0").ljust(2, "0")
    return f"{sign}{whole}.{decimals}"


def bytes_text(count: int | None) -> str:
    """Bytes in the unit that fits: `1.5 GiB`."""
    if count is None:
        return "-"
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A number and what it counts: `1 file`, `3 files`. plural: if it is not the noun and `s`."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def moment_text(instant: str | None) -> str:
    """An instant of the API to the second: `2026-11-21 10:56:06`, UTC."""
    return instant[:19].replace("T", " ") if instant else "-"


def per_hour_text(microcredits_per_hour: int | None) -> str:
    """A rate as credits per hour: `1.25/h`."""
    if microcredits_per_hour is None:
        return "-"
    return f"{credits_text(microcredits_per_hour)}/h"


def duration_text(seconds: float | None) -> str:
    """Seconds in the two units that fit: `1 h 05 min`."""
    if seconds is None:
        return "-"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def shown_text(value: Any) -> str:
    """A value as the cell of a table."""
    return printable(_in_one_line(_cell(value)))


def _in_one_line(text: str) -> str:
    """The first line of a text; `…` says that there are more."""
    line, more, _ = text.partition("\n")
    return f"{line.rstrip()}…" if more else text


def printable(text: str) -> str:
    """The text with control characters as escapes, so that a name cannot move the reader's cursor.

    Those are all that do not print, also such as change the direction of writing: ESC is `\\x1b`.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in "\n\t" else _escape(each) for each in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def pick(document: Mapping[str, Any], *names: str) -> list[Any]:
    """The values of these fields; None for one that an older API does not have."""
    return [document.get(name) for name in names]


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(str(each) for each in value) or "-"
    return str(value)


def _style(text: str) -> str:
    if text in GOOD:
        return "green"
    return "red" if text in BAD else ""
