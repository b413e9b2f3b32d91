"""The driver of local machines: this host as one machine at a time, each a process with its own SSH
server on the loopback.

A machine goes on when the worker process that has made it ends. Whichever comes next finds it by
its folder and by the start time of its process.
"""

import fcntl
import getpass
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from activities.providers.base import CapacityExhausted, RequestRefused, Unavailable
from activities.providers.local.conditions import is_trusted, node_of_this_host
from activities.providers.local.machines import HOST, end, free_port, furnish, shown, start
from activities.providers.local.processes import carriers_of, descendants_of, kill_all
from activities.providers.local.records import Asked, MachineFolder, machines_folder, machines_in
from workflows.contracts.machines import MachineObservation, MachineOffer, MachineSpec
from workflows.contracts.statuses import MachineState

GONE = MachineObservation(state=MachineState.GONE)


@dataclass(frozen=True)
class OwnedLocalMachine:
    """The `OwnedMachine` of one local machine."""

    machine_name: str
    seen: MachineObservation

    @property
    def zone(self) -> str:
        return self.seen.zone


class LocalMachines:
    """The `Driver` (see `activities/providers/base.py`) of a provider's machines on this host."""

    def __init__(
        self,
        provider_id: str,
        folder: Path,
        *,
        is_trusted: Callable[[], bool] = is_trusted,
        node_here: Callable[[], str | None] = node_of_this_host,
    ) -> None:
        self._provider_id = provider_id
        self._folder = folder
        self._is_trusted = is_trusted
        self._node_here = node_here

    def find(self, name: str, zone: str) -> MachineObservation | None:  # noqa: ARG002
        self._must_be_trusted()
        machine = MachineFolder(self._folder / name)
        asked = self._own(machine)
        return None if asked is None else shown(machine, asked)

    def create(self, name: str, offer: MachineOffer, spec: MachineSpec) -> MachineObservation:
        self._must_be_trusted()
        machine = MachineFolder(self._folder / name)
        with self._alone():
            asked = self._own(machine)
            if asked is None:
                self._must_be_free(name)
                asked = self._prepare(machine, offer, spec)
            if machine.server is None:
                start(machine)
        return shown(machine, asked)

    def terminate(self, name: str, zone: str) -> str:  # noqa: ARG002
        """Have the process of the machine end all that it has begun. Where it has been killed,
        whatever carries the machine's mark is killed, with all that was begun by that."""
        self._must_be_trusted()
        machine = MachineFolder(self._folder / name)
        if self._own(machine) is None:
            return ""
        server = machine.server
        if server is not None and server.is_alive:
            end(machine)
            return ""
        while marked := carriers_of(machine.mark):
            kill_all([*marked, *descendants_of(each.pid for each in marked)])
        machine.remove()
        return f"{name}: its process had been killed, what it had begun was ended"

    def billed_period(
        self,
        name: str,  # noqa: ARG002
        zone: str,  # noqa: ARG002
        machine_id: str | None,  # noqa: ARG002
    ) -> MachineObservation:
        """Without its times, because nothing is kept of a machine that is gone, and it is free."""
        return GONE

    def list_owned(self) -> Sequence[OwnedLocalMachine]:
        self._must_be_trusted()
        return [
            OwnedLocalMachine(
                asked.machine_name, shown(machine, asked).model_copy(update={"minion_id": None})
            )
            for machine, asked in machines_in(self._folder)
            if asked.provider_id == self._provider_id
        ]

    def _own(self, machine: MachineFolder) -> Asked | None:
        """What was asked for by this provider; None: there is no such machine of this provider."""
        asked = machine.asked
        return asked if asked is not None and asked.provider_id == self._provider_id else None

    def _must_be_trusted(self) -> None:
        """Raises: Unavailable, on a host that may not be used: another worker may be on one."""
        if not self._is_trusted():
            raise Unavailable("BASELOAD_TRUSTED_LOCAL: asked a machine of this host, is not true")

    def _must_be_free(self, name: str) -> None:
        """Raises: RequestRefused, when this host is a node; CapacityExhausted, when it is lent."""
        if (node := self._node_here()) is not None:
            raise RequestRefused(f"{name}: this host is node {node}, and is not lent twice")
        for _, asked in machines_in(self._folder):
            raise CapacityExhausted(f"{name}: this host is lent as {asked.machine_name}")

    def _prepare(self, machine: MachineFolder, offer: MachineOffer, spec: MachineSpec) -> Asked:
        """Write the folder of a new machine; its record, which makes it one, comes last."""
        name, region_id = machine.path.name, spec.tags.get("region")
        if region_id is None:
            raise RequestRefused(f"{name}: its tags name no region, whose key it would let in")
        now = datetime.now(UTC)
        asked = Asked(
            machine_name=name,
            provider_id=self._provider_id,
            offer_label=offer.label,
            began_at=now,
            ends_at=now + timedelta(seconds=spec.lifetime_s),
            host=HOST,
            port=free_port(),
            user=getpass.getuser(),
        )
        machine.make()
        furnish(machine, asked, region_id)
        machine.write_asked(asked)
        return asked

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock of this host's local machines, so that it is lent once."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def local_machines(provider_id: str) -> LocalMachines:
    """The driver of a provider's machines on this host."""
    return LocalMachines(provider_id, machines_folder())
