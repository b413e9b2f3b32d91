"""`baseload tco`: when machines have paid for themselves, against renting."""

from __future__ import annotations

import csv as csv_files
import json
import shutil
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from baseload.commands.app import new_app
from baseload.commands.billing import Day
from baseload.commands.credit import microcredits
from baseload.commands.lookup import find_id
from baseload.commands.session import Document, MistakeError, Session, command
from baseload.commands.terminal import counted, credits_text, printable

app = new_app()
FIELDS = {
    "price": "purchase_price_microcredits",
    "months": "months_of_use",
    "watts": "power_w",
    "kwh-price": "electricity_microcredits_per_kwh",
    "on-demand": "on_demand_microcredits_per_gpu_hour",
    "committed": "committed_microcredits_per_gpu_hour",
}
"""What is stated of nodes, as options and as keys of the file, and the API's names."""
COLUMNS = (
    "utilisation", "gpu_hours", "rental", "usage_fee", "electricity", "earned", "saved",
    "pays_back_months",
)  # fmt: skip
LEAST_BAR, MOST_BAR = 10, 100
LEAST_WIDTH = 40


@command(app)
def tco(
    session: Session,
    price: Annotated[
        str | None, typer.Option(metavar="CREDITS", help="purchase price of a node")
    ] = None,
    months: Annotated[int | None, typer.Option(help="months of use of a node")] = None,
    watts: Annotated[int | None, typer.Option(help="power draw of a node, in all hours")] = None,
    kwh_price: Annotated[
        str | None, typer.Option(metavar="CREDITS", help="price of electricity per kWh")
    ] = None,
    on_demand: Annotated[
        str | None,
        typer.Option(metavar="CREDITS", help="per GPU-hour, in place of the list price"),
    ] = None,
    committed: Annotated[
        str | None,
        typer.Option(metavar="CREDITS", help="per GPU-hour of a commitment, likewise"),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="YAML with what differs by node: {n1: {price: 9000, watts: 700}}"),
    ] = None,
    node: Annotated[list[str] | None, typer.Option(help="id or name; only these nodes")] = None,
    since: Day = None,
    until: Day = None,
    csv: Annotated[bool, typer.Option("--csv", help="for spreadsheets")] = False,
) -> None:
    """When own nodes have paid for themselves, by the GPU-hours in the ledger (30 days)."""
    given = {"price": price, "months": months, "watts": watts, "kwh-price": kwh_price}
    given |= {"on-demand": on_demand, "committed": committed}
    found = session.get(
        "/v1/tco",
        **_stated(given, "tco"),
        overrides=_overrides(session, file),
        node_id=[find_id(session, "nodes", each) for each in node or ()] or None,
        begins_at=_instant(since),
        ends_at=_instant(until),
    )
    if session.screen.as_json:
        session.screen.json(found)
    elif csv:
        _write_csv(found)
    else:
        _show(session, found)


def _instant(day: datetime | None) -> str | None:
    return None if day is None else day.replace(tzinfo=UTC).isoformat()


def _stated(given: dict[str, Any], where: str) -> dict[str, int]:
    """What is stated of nodes in the names and units of the API.

    Raises: MistakeError, for an unknown key, or a value that is no number.
    """
    found = {}
    for name, value in given.items():
        if name not in FIELDS:
            raise MistakeError(f"{where}: {name}: asked one of {', '.join(FIELDS)}")
        if value is None:
            continue
        if name not in ("months", "watts"):
            found[FIELDS[name]] = microcredits(str(value))
        elif isinstance(value, int):
            found[FIELDS[name]] = value
        else:
            raise MistakeError(f"{where}: {name}: asked a whole number, found {value!r}")
    return found


def _overrides(session: Session, file: Path | None) -> str | None:
    """What the file states of single nodes, by their ids, as JSON."""
    if file is None:
        return None
    try:
        read = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as cause:
        raise MistakeError(f"{file}: {cause}") from cause
    if not isinstance(read, dict) or not all(isinstance(each, dict) for each in read.values()):
        raise MistakeError(f"{file}: asked names of nodes with what is stated of each")
    stated = {
        find_id(session, "nodes", str(name)): _stated(each, f"{file}: {name}")
        for name, each in read.items()
    }
    return json.dumps(stated)


def _show(session: Session, found: Document) -> None:
    """Draw for each node and for all of them when the purchase has paid for itself."""
    drawing = _Drawing(session)
    for node in found["nodes"]:
        drawing.write(
            f"{node['name']}: {node['gpu_count']} x {node['gpu_type']}, "
            f"{_credits(node['purchase_price_microcredits'])} credits, "
            f"{node['gpu_hours']['value']:g} GPU-hours since {node['begins_at'][:10]}, "
            f"of its own {_credits(node['own_microcredits_per_gpu_hour'])} each"
        )
        drawing.draw(node["comparisons"], node["months_of_use"]["value"])
    total = found["total"]
    if total is not None and len(found["nodes"]) > 1:
        drawing.write(
            f"{counted(len(found['nodes']), 'node')} together: "
            f"{_credits(total['purchase_price_microcredits'])} credits, "
            f"{total['gpu_hours']['value']:g} GPU-hours"
        )
        months = max(node["months_of_use"]["value"] for node in found["nodes"])
        drawing.draw(total["comparisons"], months)
        for line in total["without_price"]:
            drawing.write(line, indent=2)
    for number, source in enumerate(drawing.sources, 1):
        drawing.write(f"[{number}] {source}")
    for each in found["left_out"]:
        session.screen.say(f"left out: {each['name']}: {each['reason']}")
    if not found["nodes"]:
        session.screen.say("no node is calculated: baseload tco --help says what to state")


class _Drawing:
    """Plain text as wide as the terminal, with the sources of prices as notes."""

    def __init__(self, session: Session) -> None:
        self._screen = session.screen
        self._width = shutil.get_terminal_size((80, 24)).columns
        self.sources: list[str] = []

    def write(self, text: str, indent: int = 0) -> None:
        """Print a text in lines that fit."""
        lines = textwrap.wrap(
            text,
            max(self._width, LEAST_WIDTH),
            initial_indent=" " * indent,
            subsequent_indent=" " * (indent + 4),
        )
        self._screen.result("\n".join(lines))

    def draw(self, comparisons: list[Document], months_of_use: int) -> None:
        """Draw a bar for each utilisation: months until it has paid back, of the months of use."""
        for comparison in comparisons:
            price, against = (
                comparison["microcredits_per_gpu_hour"],
                f"against {comparison['plan']}",
            )
            if price is not None and price["value"] is None:
                self.write(f"{against}: {price['source']}", indent=2)
            elif price is not None:
                note = self._note(price["source"])
                self.write(f"{against} at {_credits(price)} a GPU-hour {note}", indent=2)
            else:
                self.write(against, indent=2)
            for month in comparison["months"]:
                self._screen.result(_line(month, months_of_use, self._width))

    def _note(self, source: str) -> str:
        if source not in self.sources:
            self.sources.append(source)
        return f"[{self.sources.index(source) + 1}]"


def _line(month: Document, months_of_use: int, width: int) -> str:
    share = f"{100 * month['utilisation']['value']:.0f} %"
    saved = month["saved_microcredits"]["value"] / 1_000_000
    paid = month["pays_back_months"]["value"]
    left = f"  {'now' if month['is_now'] else '':<4}{share:>5}  "
    words = "never" if paid is None else f"{paid:g} months"
    right = f"  {words:<13}{saved:+.2f} a month"
    room = min(max(width - len(left) - len(right) - 2, LEAST_BAR), MOST_BAR)
    return f"{left}[{bar_text(paid, months_of_use, room)}]{right}"


def bar_text(paid: float | None, months_of_use: int, room: int) -> str:
    """The bar of the months of use: `#` until it has paid back, `>` where that comes later."""
    if paid is None:
        return "-" * room
    if paid > months_of_use:
        return "#" * (room - 1) + ">"
    filled = max(1, round(room * paid / months_of_use))
    return "#" * filled + "." * (room - filled)


def _write_csv(found: Document) -> None:
    """One line for each node, plan and utilisation; money in credits, of one month."""
    writer = csv_files.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("node", "name", "plan", "gpu_hour_price", "price_source", "now", *COLUMNS))
    for node in found["nodes"]:
        for line in _csv_lines(node["comparisons"]):
            writer.writerow((node["node_id"], _plain(node["name"]), *line))
    for line in _csv_lines(found["total"]["comparisons"] if found["total"] else []):
        writer.writerow(("total", "", *line))


def _csv_lines(comparisons: list[Document]) -> Iterator[list[Any]]:
    for comparison in comparisons:
        price = comparison["microcredits_per_gpu_hour"] or {"value": None, "source": ""}
        head = [comparison["plan"], _amount(price["value"]), _plain(price["source"])]
        if not comparison["months"]:
            yield [*head, *[""] * (len(COLUMNS) + 1)]
        for month in comparison["months"]:
            values = (
                month[name]["value"] if name in month
                else _amount(month[f"{name}_microcredits"]["value"])
                for name in COLUMNS
            )  # fmt: skip
            yield [*head, "yes" if month["is_now"] else "", *values]


def _credits(figure: Document) -> str:
    return credits_text(figure["value"])


def _amount(value: int | None) -> str:
    return "" if value is None else credits_text(value)


def _plain(text: str) -> str:
    """The text of a CSV cell, quoted so that no spreadsheet runs it as a formula."""
    return printable(f"'{text}" if text[:1] in ("=", "+", "-", "@") else text)
