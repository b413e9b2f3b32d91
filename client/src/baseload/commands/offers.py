"""`baseload offers`: where a job would go, without submitting it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.credit import microcredits
from baseload.commands.jobs import refusals_table
from baseload.commands.lookup import find_id
from baseload.commands.session import NegativeError, Session, command
from baseload.commands.terminal import bytes_text, credits_text, duration_text

app = new_app()


@command(app)
def offers(
    session: Session,
    gpus: Annotated[str, typer.Option(help="TYPE, TYPE:COUNT or cpu")] = "cpu",
    cpus: Annotated[int | None, typer.Option(help="processors")] = None,
    memory_gib: Annotated[float | None, typer.Option(help="memory")] = None,
    disk_gb: Annotated[int | None, typer.Option(help="disk")] = None,
    max_price: Annotated[
        str | None, typer.Option(metavar="CREDITS", help="at most, per GPU-hour, such as 2.5")
    ] = None,
    region: Annotated[str | None, typer.Option(help="id or name; only there")] = None,
    provider: Annotated[
        list[str] | None,
        typer.Option(help="a kind, a name or an id; several in the order of preference"),
    ] = None,
    project: Annotated[str | None, typer.Option(help="id; a job of this project")] = None,
) -> None:
    """List machines that would take such a job, best first, and why others do not. 1 when none.

    About: a price of a dated list, or one that a marketplace has stated a while ago. Kinds whose
    machines are free of charge, such as local, are for those who name them.
    """
    if cpus is None and gpus == "cpu":
        cpus = 1
    found = session.get(
        "/v1/offers",
        gpus=gpus,
        cpu_count=cpus,
        memory_gib=memory_gib,
        disk_size_gb=disk_gb,
        max_price=None if max_price is None else microcredits(max_price),
        region_id=find_id(session, "regions", region) if region else None,
        providers=provider or None,
        project_id=project,
    )
    if session.screen.as_json:
        session.screen.json(found)
    else:
        offers_table(session, found["offers"])
        refusals_table(session, found["refusals"])
    if not found["offers"]:
        raise NegativeError("nothing fits now")


def offers_table(session: Session, found: list[dict[str, object]]) -> None:
    """Print the offers that fit, best first."""
    rows = [
        [
            each["rank"],
            each["node_name"]
            or f"{'spot ' * bool(each['spot'])}{each['machine_type']}, to be made",
            each["region_name"],
            _provider(each),
            f"{each['free_gpu_count']}/{each['gpu_count']} {each['gpu_type'] or ''}".strip(),
            f"{each['free_cpu_count']}/{each['cpu_count']}",
            bytes_text(int(str(each["free_memory_bytes"]))),
            _price(each),
            _age(each),
        ]
        for each in found
    ]
    columns = (
        *("rank", "node", "region", "provider", "free gpus", "free cpus", "memory"),
        *("credits/h", "price read"),
    )
    if rows:
        session.screen.table(columns, rows)


def _provider(offer: dict[str, object]) -> str:
    """The provider's name with its kind, such as `work (runpod), preferred`."""
    name, kind = offer["provider_name"], offer["provider_kind"]
    shown = f"{name} ({kind})" if name not in (None, kind) else kind
    return f"{shown}{', preferred' * bool(offer['preferred'])}"


def _price(offer: dict[str, object]) -> str:
    about = "about " * bool(offer["price_is_estimate"])
    return f"{about}{credits_text(int(str(offer['microcredits_per_hour'])))}"


def _age(offer: dict[str, object]) -> str:
    """How long ago a marketplace has stated the price, or the day of a cloud's price list."""
    read_at = offer["read_at"]
    if read_at is None:
        return str(offer["price_read_on"] or "-")
    age = datetime.now(UTC) - datetime.fromisoformat(str(read_at))
    return f"{duration_text(max(0.0, age.total_seconds()))} ago"
