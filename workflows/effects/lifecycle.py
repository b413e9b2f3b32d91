"""Effects of every lifecycle: recording a step, starting and telling other workflows."""

from workflows.contracts.base import Contract
from workflows.contracts.record import Record, Recorded
from workflows.effects.effect import Effect


class DeliverRequests(Contract):
    """Deliver what the API has written down and could not hand over: at most `limit`."""

    older_than_s: float = 5
    limit: int = 500


class RequestsDelivered(Contract):
    delivered: int
    more: bool = False


class SweepLost(Contract):
    """Find what has lost its workflow, `page_size` rows at a time."""

    page_size: int = 200


class LostSwept(Contract):
    restarted: tuple[str, ...] = ()


class SweepMachines(Contract):
    """Compare every provider's list of machines with the leases."""


class MachinesSwept(Contract):
    released: tuple[str, ...] = ()
    """Machines that nobody held, by name: their end was asked for."""
    unknown: tuple[str, ...] = ()
    """Machines with our mark that no lease names: for a person to look at."""
    missing: tuple[str, ...] = ()
    """Leases that are ready, and whose machine is not listed: they were told to look."""
    failed: tuple[str, ...] = ()
    """Providers that could not be asked, and why."""

    def plus(self, **more: tuple[str, ...]) -> "MachinesSwept":
        return MachinesSwept(
            **{name: getattr(self, name) + more.get(name, ()) for name in type(self).model_fields}
        )


class RefreshPrices(Contract):
    """Ask every cloud that tells its prices for them."""


class PricesRefreshed(Contract):
    kept: int = 0
    """Prices that were told, could be, and are used from now on."""
    rejected: tuple[str, ...] = ()
    """The first of those that could not be, and why: the last that could stay."""
    refused: tuple[str, ...] = ()
    """Providers whose key is not allowed to read them, and why."""

    def plus(self, other: "PricesRefreshed") -> "PricesRefreshed":
        return PricesRefreshed(
            kept=self.kept + other.kept,
            rejected=(*self.rejected, *other.rejected),
            refused=(*self.refused, *other.refused),
        )


record = Effect("record", Record, Recorded, start_to_close_s=10)
"""Status, event and changes of one step, in one transaction; wakes placement when it matters."""

deliver_requests = Effect("deliver_requests", DeliverRequests, RequestsDelivered)
"""Start the workflows and send the signals that the API's rows ask for and nobody has sent."""

sweep_lost = Effect("sweep_lost", SweepLost, LostSwept, start_to_close_s=240, heartbeat_s=60)
"""Rows in an open state whose workflow is gone: start it again; a job then ends what it left."""

sweep_machines = Effect(
    "sweep_machines", SweepMachines, MachinesSwept, start_to_close_s=240, heartbeat_s=60
)
"""What carries our mark at a provider and no lease holds is ended."""

refresh_prices = Effect(
    "refresh_prices",
    RefreshPrices,
    PricesRefreshed,
    start_to_close_s=540,
    heartbeat_s=60,
    retry_first_s=10,
    retry_most_s=600,
)
"""What clouds tell of their prices is kept, as far as it can be."""
