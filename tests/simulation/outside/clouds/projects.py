"""The projects of providers at Google: all that each has there, and what Google writes down."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.simulation.contracts import Temporal
from tests.simulation.outside.clouds.faults import Faults
from tests.simulation.outside.clouds.instances import Instance, Operation
from tests.simulation.outside.clouds.parts import Parts
from tests.simulation.outside.clouds.subscription import Subscription


@dataclass
class Project:
    """What one provider has at Google."""

    parts: Parts
    feed: Subscription
    there: dict[str, dict[str, Instance]] = field(default_factory=dict)
    """The instances that are not gone, by name and zone."""
    ever: list[Instance] = field(default_factory=list)
    operations: dict[tuple[str, str], list[Operation]] = field(default_factory=dict)
    """By the name and the zone of their instances."""

    def instance(self, name: str, zone: str) -> Instance | None:
        return self.there.get(name, {}).get(zone)

    def has_instances_in(self, cloud_region: str) -> bool:
        return any(
            zone.rpartition("-")[0] == cloud_region
            for zones in self.there.values()
            for zone in zones
        )

    def operation(self, instance: Instance, kind: str) -> Operation:
        """Begin an operation on an instance."""
        operation = Operation(kind, instance.number)
        where = instance.name, instance.zone
        self.operations.setdefault(where, []).append(operation)
        return operation

    def log(self, instance: Instance, method: str) -> None:
        """Write an entry of the audit log, which comes to us where all parts of its path are."""
        if self.parts.pass_messages:
            self.feed.log(instance, method)

    def add(self, instance: Instance) -> None:
        self.there.setdefault(instance.name, {})[instance.zone] = instance
        self.ever.append(instance)

    def drop(self, instance: Instance) -> None:
        zones = self.there[instance.name]
        del zones[instance.zone]
        if not zones:
            del self.there[instance.name]


class Projects:
    """All projects, by provider; a provider's project is there before we ask for it."""

    def __init__(self, temporal: Temporal, faults: Faults) -> None:
        self._temporal = temporal
        self._faults = faults
        self._found: dict[str, Project] = {}

    def of(self, provider_id: str) -> Project:
        found = self._found.get(provider_id)
        if found is None:
            faults = self._faults
            parts = Parts(self._temporal, faults, provider_id)
            feed = Subscription(self._temporal, lambda: faults.is_on("feed_silent", provider_id))
            found = self._found[provider_id] = Project(parts, feed)
        return found

    def __iter__(self) -> Iterator[Project]:
        return iter(self._found.values())
