"""The schemas of reservations."""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, Field

from api.schemas.base import Name, Page, RequestBody, ResourceId, ResponseBody
from workflows.contracts.reservations import HostnameState, ReservationType
from workflows.rules.reservations.names import (
    HIGHEST_PORT,
    LOWEST_PORT,
    hostname_mistake,
    port_mistake,
)


def _hostname(text: str) -> str:
    if mistake := hostname_mistake(text):
        raise ValueError(mistake)
    return text


def _port(port: int) -> int:
    if mistake := port_mistake(port):
        raise ValueError(mistake)
    return port


class ReservationCreation(RequestBody):
    region_id: ResourceId
    name: Name
    type: ReservationType = ReservationType.PORT
    hostname: Annotated[str, Field(max_length=63), AfterValidator(_hostname)]
    """One label in lower case, which no other reservation of the region has. Machines on the
    region's network find the job under `HOSTNAME.local`."""
    port: Annotated[int, Field(ge=LOWEST_PORT, le=HIGHEST_PORT), AfterValidator(_port)]
    """The port at which the job listens, 1024 to 65535, and none of the platform's own."""


class ReservationHolder(ResponseBody):
    """The job that holds a reservation, and where it runs."""

    job_id: str
    job_name: str
    job_status: str
    node_id: str
    node_name: str
    since: datetime
    """When the node was chosen."""


class Reservation(ResponseBody):
    id: str
    account_id: str
    region_id: str
    name: str
    type: ReservationType
    hostname: str
    published_name: str
    """The hostname with its domain, as machines on the region's network ask for it."""
    port: int
    created_at: datetime
    holder: ReservationHolder | None
    """null: no job holds it."""


class HostnameEvent(ResponseBody):
    """What a node has said of the hostname while a job held the reservation."""

    job_id: str
    state: HostnameState
    message: str
    at: datetime


class DescribedReservation(Reservation):
    """A reservation, with what was said of its hostname."""

    events: list[HostnameEvent]
    """The newest 20, newest first; they are events of the jobs too."""


class ReservationPage(Page[Reservation]):
    pass
