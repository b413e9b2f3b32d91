"""What a provider has at Google besides instances: Pub/Sub, the sink, the network, its rules."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from activities.providers.gcp.errors import GoogleRefusedError, refused
from tests.simulation.contracts import Temporal
from tests.simulation.outside.clouds.faults import Faults
from tests.simulation.outside.clouds.instances import Operation

State = Literal["making", "there", "removing"]
AT_ONCE = frozenset({"topic", "subscription", "sink", "publisher"})
"""What Google creates and removes without an operation."""
NEEDS: Mapping[str, tuple[str, ...]] = {
    "subscription": ("topic",),
    "publisher": ("topic",),
    "ssh-firewall": ("network",),
    "inner-firewall": ("network",),
    "subnetwork": ("network",),
}
"""What has to be there before Google creates something."""
PATH = ("topic", "subscription", "sink", "publisher")
"""The path of notifications; without one of them, they are lost."""
TAKES_S = (3.0, 40.0)
TAKES_LATE_S = (60.0, 400.0)


@dataclass
class Parts:
    """The parts of one provider, by name; a subnetwork is `subnetwork/us-central1`."""

    temporal: Temporal
    faults: Faults
    provider_id: str
    states: dict[str, State] = field(default_factory=dict)

    @property
    def pass_messages(self) -> bool:
        return all(each in self.states for each in PATH)

    def path(self, name: str) -> str:
        return f"projects/{self.provider_id}/{name}"

    def is_there(self, name: str) -> bool:
        """Whether Google shows it, also while it is being created or removed."""
        return name in self.states

    def create(self, name: str) -> Operation:
        """Begin to create a part.

        Raises: GoogleRefusedError, when it exists, or what it needs does not;
        GoogleUnavailableError, while what it needs is being created.
        """
        asked = self.path(name)
        if name in self.states:
            raise GoogleRefusedError(asked, 409, "alreadyExists", "it exists already")
        for needed in NEEDS.get(name.partition("/")[0], ()):
            state = self.states.get(needed)
            if state is None:
                raise GoogleRefusedError(asked, 404, "notFound", f"{needed} was not found")
            if state != "there":
                raise refused(asked, 400, "resourceNotReady", f"{needed} is not ready")
        self.states[name] = "making"

        def end() -> None:
            self.states[name] = "there"

        return self._operation(name, "insert", end)

    def remove(self, name: str, *, is_used: bool = False) -> Operation:
        """Begin to remove a part.

        is_used: whether instances use it. Raises: GoogleRefusedError, when it is missing or used.
        """
        asked = self.path(name)
        if name not in self.states:
            raise GoogleRefusedError(asked, 404, "notFound", "it was not found")
        if self.states[name] != "there":
            raise refused(asked, 400, "resourceNotReady", f"it is {self.states[name]}")
        if is_used or (name == "network" and self._network_is_used()):
            raise GoogleRefusedError(asked, 400, "resourceInUseByAnotherResource", "it is in use")
        self.states[name] = "removing"
        return self._operation(name, "delete", lambda: self.states.pop(name, None))

    def _network_is_used(self) -> bool:
        return any("network" in NEEDS.get(each.partition("/")[0], ()) for each in self.states)

    def _operation(self, name: str, kind: str, end: Callable[[], object]) -> Operation:
        operation = Operation(kind, 0)
        if name in AT_ONCE:
            end()
            operation.end(self.temporal.now())
            return operation
        is_late = self.faults.meets("makes_late", self.provider_id)
        seconds = self.temporal.random.uniform(*(TAKES_LATE_S if is_late else TAKES_S))

        def done() -> None:
            end()
            operation.end(self.temporal.now())

        self.temporal.later(seconds, done)
        return operation
