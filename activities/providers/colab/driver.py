"""The driver of notebooks: the endpoint that a notebook has announced, as one machine at a time.

It makes and ends nothing in the world: a lease adopts the endpoint, and its end only lets the
endpoint go. Whoever has opened the notebook closes it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from sqlmodel import Session

from activities.db.session import AWAY, Database, database
from activities.db.tables import ColabEndpointRow
from activities.providers.base import CapacityExhausted, OwnedMachine, RequestRefused, Unavailable
from activities.providers.colab_endpoints import (
    expire_endpoint,
    is_open,
    node_before,
    offer_of,
    offers_of,
    release_endpoint,
    silent_since,
)
from workflows.contracts.machines import (
    MachineObservation,
    MachineOffer,
    MachineSpec,
    RentalOffer,
)
from workflows.contracts.statuses import MachineState

GONE = MachineObservation(state=MachineState.GONE)
RUN_THE_CELL = "open the notebook and run the cell of `baseload provider colab-bootstrap`"


class ColabMachines:
    """The `Driver` (see `activities/providers/base.py`) of a provider's notebook."""

    def __init__(
        self,
        provider_id: str,
        *,
        database: Callable[[], Database] = database,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._provider_id = provider_id
        self._database = database
        self._clock = clock

    def find(self, name: str, zone: str) -> MachineObservation | None:  # noqa: ARG002
        """The machine while its endpoint is held by this name.

        It has stopped when the endpoint has expired. The endpoint of a machine whose node has been
        offline for long expires at once.
        """
        now = self._clock()
        with self._reading() as session:
            row = session.get(ColabEndpointRow, self._provider_id)
            if row is None or row.held_by != name:
                return None
            if not is_open(row, now):
                return _stopped(row, f"the endpoint has expired at {row.expires_at:%F %T} UTC")
            since = silent_since(session, name, now)
        if since is None:
            return _shown(row)
        with self._writing() as session:
            locked = session.get_one(ColabEndpointRow, self._provider_id, with_for_update=True)
            if locked.endpoint_id == row.endpoint_id:
                expire_endpoint(session, locked, now)
        return _stopped(row, f"silent since {since:%F %T} UTC: the notebook or tunnel has ended")

    def create(self, name: str, offer: MachineOffer, spec: MachineSpec) -> MachineObservation:
        """Adopt the endpoint for a lease, which holds it until its end.

        Raises: CapacityExhausted, when no notebook is there, or another lease holds it;
        RequestRefused, for containers; Unavailable, while the node of the lease before is there,
        because two nodes cannot have one host key.
        """
        if spec.containers:
            raise RequestRefused(f"{name}: a notebook runs no containers: leave out the image")
        now = self._clock()
        with self._writing() as session:
            row = session.get(ColabEndpointRow, self._provider_id, with_for_update=True)
            if row is None or row.endpoint_id is None:
                raise CapacityExhausted(f"no notebook has announced itself: {RUN_THE_CELL}")
            if not is_open(row, now):
                raise CapacityExhausted(
                    f"the endpoint of the notebook has expired at {row.expires_at:%F %T} UTC: "
                    f"{RUN_THE_CELL} again"
                )
            if row.held_by not in (None, name):
                raise CapacityExhausted(f"the notebook is held by {row.held_by} until its end")
            if row.held_by is None and offer.label != offer_of(row).label:
                raise CapacityExhausted("the notebook was announced anew, with another offer")
            if row.held_by is None and (before := node_before(session, row, name)) is not None:
                raise Unavailable(f"{before} of the lease before is not forgotten yet")
            if row.held_by is None:
                row.held_by, row.held_at = name, now
                session.add(row)
        return _shown(row)

    def terminate(self, name: str, zone: str) -> str:  # noqa: ARG002
        """Let the endpoint go, if this name holds it; the runtime itself runs on."""
        with self._writing() as session:
            row = session.get(ColabEndpointRow, self._provider_id, with_for_update=True)
            if row is not None and row.held_by == name:
                release_endpoint(session, row)
        return ""

    def billed_period(
        self,
        name: str,  # noqa: ARG002
        zone: str,  # noqa: ARG002
        machine_id: str | None,  # noqa: ARG002
    ) -> MachineObservation:
        """Without its times, because a notebook costs nothing here."""
        return GONE

    def list_owned(self) -> Sequence[OwnedMachine]:
        """None: a notebook is its user's, and never an orphan."""
        return ()

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        try:
            with self._database().read() as session:
                yield session
        except AWAY as error:
            raise _unavailable(error) from error

    @contextmanager
    def _writing(self) -> Iterator[Session]:
        try:
            with self._database().write(f"colab/{self._provider_id}") as session:
                yield session
        except AWAY as error:
            raise _unavailable(error) from error


def colab_machines(provider_id: str) -> ColabMachines:
    """The driver of a provider's notebook."""
    return ColabMachines(provider_id)


def colab_offers(provider_id: str) -> tuple[RentalOffer, ...]:
    """The one offer of the announced endpoint; none when it has expired."""
    with database().read() as session:
        return offers_of(session.get(ColabEndpointRow, provider_id), datetime.now(UTC))


def _shown(row: ColabEndpointRow) -> MachineObservation:
    """The observation of a held endpoint, whose host key is the announced one."""
    offer = offer_of(row)
    return MachineObservation(
        state=MachineState.RUNNING,
        zone=offer.zone,
        provider_machine_id=row.endpoint_id,
        host=row.host,
        port=row.port,
        user=row.ssh_user,
        minion_id=row.minion_id,
        microcredits_per_hour=0,
        began_at=row.held_at,
        offer_label=offer.label,
    )


def _stopped(row: ColabEndpointRow, reason: str) -> MachineObservation:
    return _shown(row).model_copy(update={"state": MachineState.STOPPED, "reason": reason})


def _unavailable(error: Exception) -> Unavailable:
    return Unavailable(f"the database does not answer: {type(error).__name__}")
