"""The schemas of machines as their providers list them, also where no lease knows them."""

from datetime import datetime

from api.schemas.base import ResponseBody


class ProviderMachine(ResponseBody):
    """A machine that carries the provider's ownership label."""

    name: str
    zone: str
    state: str
    """`making`, `running`, `ending` or `stopped`."""
    provider_machine_id: str | None
    microcredits_per_hour: int | None
    began_at: datetime | None
    lease_id: str | None
    """The lease that has, or had, a machine of this name."""
    held: bool
    """Whether that lease has not ended and is in this zone; else the machine is orphaned."""


class ProviderMachineList(ResponseBody):
    """All machines with our ownership label that the provider lists now."""

    provider_id: str
    read_at: datetime
    items: list[ProviderMachine]


class MachineEnding(ResponseBody):
    """What terminates a machine: its lease, or the provider's workflow for an orphaned machine."""

    provider_id: str
    name: str
    zone: str
    lease_id: str | None
