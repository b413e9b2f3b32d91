"""A provider's machines, as the provider lists them, orphaned machines included."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from api.authorization import Caller, Needs
from api.changes import Change, changing
from api.schemas.provider_machines import MachineEnding, ProviderMachineList
from api.services import provider_machines
from workflows.contracts.machines import OrphanedMachine

router = APIRouter(prefix="/v1/providers/{provider_id}/machines", tags=["leases"])
Reader = Annotated[Caller, Depends(Needs("leases:read"))]
Writer = Annotated[Change, changing("leases:write")]
Name = Annotated[str, Path(pattern="^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$")]
Zone = Annotated[str, Query(pattern="^[-_.A-Za-z0-9]{0,63}$")]
"""The zone as the provider's list says it: empty where the provider says none, a region's place, or
the code of a country, in capitals or not."""


@router.get("", operation_id="list_provider_machines")
def list_provider_machines(provider_id: str, caller: Reader) -> ProviderMachineList:
    """Every machine with our ownership label that the provider lists; `held` says: by a lease."""
    return provider_machines.machines_of(caller, provider_id, datetime.now(UTC))


@router.delete("/{name}", status_code=202, operation_id="end_provider_machine")
async def end_provider_machine(
    provider_id: str, name: Name, zone: Zone, change: Writer
) -> MachineEnding:
    """Terminate a machine, held by a lease or orphaned; it is gone when no longer listed."""
    machine = OrphanedMachine(name=name, zone=zone)
    return await change.apply(
        MachineEnding, lambda context: provider_machines.end(context, provider_id, machine)
    )
