"""Reservations: hostnames and ports of a region, each for one job at a time."""

from typing import Annotated

from fastapi import APIRouter, Depends
from sqlmodel import col, select

from activities.db import tables
from activities.db.session import database
from api.authorization import Caller, Needs
from api.changes import Change, changing
from api.pagination import Paging, page
from api.schemas.reservations import (
    DescribedReservation,
    Reservation,
    ReservationCreation,
    ReservationPage,
)
from api.services import reservations

router = APIRouter(prefix="/v1/reservations", tags=["reservations"])
Reader = Annotated[Caller, Depends(Needs("reservations:read"))]
Writer = Annotated[Change, changing("reservations:write")]


@router.get("", operation_id="list_reservations")
def list_reservations(
    caller: Reader, paging: Paging, region_id: str | None = None
) -> ReservationPage:
    """The account's reservations, each with the job that holds it."""
    table = tables.Reservation
    rows = select(table).where(
        table.account_id == caller.account_id, col(table.removed_at).is_(None)
    )
    if region_id is not None:
        rows = rows.where(table.region_id == region_id)
    with database().read() as session:
        view = (
            col(table.id),
            lambda rows: reservations.reservation_responses(session, rows),
        )
        return page(session, ReservationPage, rows, paging, view)


@router.post("", status_code=201, operation_id="create_reservation")
async def create_reservation(asked: ReservationCreation, change: Writer) -> Reservation:
    """Reserve a hostname and a port in a region of own machines that has an active node."""
    return await change.apply(
        Reservation, lambda context: reservations.create_reservation(context, asked)
    )


@router.get("/{reservation_id}", operation_id="get_reservation")
def get_reservation(reservation_id: str, caller: Reader) -> DescribedReservation:
    """A reservation, with what nodes have said of its hostname."""
    with database().read() as session:
        return reservations.described_reservation(session, reservation_id, caller)


@router.delete("/{reservation_id}", operation_id="remove_reservation")
async def remove_reservation(reservation_id: str, change: Writer) -> Reservation:
    """Remove a reservation that no open job names."""
    return await change.apply(
        Reservation, lambda context: reservations.remove_reservation(context, reservation_id)
    )
