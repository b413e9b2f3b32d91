"""Machines as their providers list them, whatever we believe."""

from datetime import datetime

from api.schemas.base import ResponseBody


class ProviderMachine(ResponseBody):
    """A machine that carries the provider's ownership label."""

    name: str
    zone: str
    state: str
    """`making`, `running`, `ending` or `cancel_and_wait`."""
    provider_machine_id: str | None
    microcredits_per_hour: int | None
    began_at: datetime | None
    lease_id: str | None
    """The lease that has, or had, a machine of this name."""
    held: bool
    """That lease has not ended, and is at this place; else nobody will miss the machine."""


class ProviderMachineList(ResponseBody):
    """All of them, as the provider says now."""

    provider_id: str
    read_at: datetime
    items: list[ProviderMachine]


class MachineEnding(ResponseBody):
    """What ends a machine: its lease, or the provider's own workflow where none holds it."""

    provider_id: str
    name: str
    zone: str
    lease_id: str | None
