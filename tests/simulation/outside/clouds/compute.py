"""Compute Engine as the driver asks it: each request is answered, or done, at one instant."""

from collections.abc import Iterator
from datetime import timedelta

from activities.providers.gcp.errors import GoogleRefusedError, GoogleUnavailableError
from tests.simulation.contracts import CloudMachine, Temporal
from tests.simulation.outside.clouds.faults import Faults
from tests.simulation.outside.clouds.instances import Body, Instance, Operation
from tests.simulation.outside.clouds.lives import Lives
from tests.simulation.outside.clouds.projects import Projects

MAKES_S = (5.0, 30.0)
MAKES_LATE_S = (80.0, 900.0)
SHORT_S = (2.0, 40.0)
"""How long an insert takes until Google says that it has no capacity."""
NO_QUOTA = (403, "quotaExceeded", "Quota 'GPUS_ALL_REGIONS' exceeded")
LISTS_S, LISTS_LAG_S = 5.0, 400.0
"""How old a list of instances is at most."""
UNKNOWN_NUMBER = 0.01
"""The share of deletions by number for which Google does not find the number that it shows."""


class Compute:
    """The instances of all projects, and what must never be asked for."""

    def __init__(
        self, temporal: Temporal, faults: Faults, projects: Projects, lives: Lives
    ) -> None:
        self.violations: list[str] = []
        self._temporal = temporal
        self._faults = faults
        self._projects = projects
        self._lives = lives

    def insert(self, body: Body) -> Operation:
        """Accept an insert.

        Raises: GoogleRefusedError, when the name is taken, the quota is used up, or the subnetwork
        is missing; GoogleUnavailableError, after which the instance may be made minutes later.
        """
        self._check(body)
        random, faults, where = self._temporal.random, self._faults, (body.provider_id, body.zone)
        if faults.meets("makes_twice", *where):
            operation = self._lives.fail(body, random.uniform(*SHORT_S))
            self._lives.make_later(body)
            return operation
        if faults.is_on("no_capacity", *where):
            if random.random() < 0.3:
                raise GoogleRefusedError(f"instance {body.name}", *NO_QUOTA)
            return self._lives.fail(body, random.uniform(*SHORT_S))
        if not faults.is_on("makes_late", *where):
            return self._lives.make(body, random.uniform(*MAKES_S))
        if random.random() < 0.5:
            self._lives.make_later(body)
            raise GoogleUnavailableError(f"instance {body.name}: no answer: ReadTimeout")
        return self._lives.make(body, random.uniform(*MAKES_LATE_S))

    def get(self, provider_id: str, name: str, zone: str) -> Instance | None:
        """A consistent read: it finds what was just accepted."""
        return self._projects.of(provider_id).instance(name, zone)

    def delete(self, instance: Instance, *, by_number: bool) -> bool:
        """Begin a deletion; False when Google does not find the instance."""
        if instance.gone_at is not None:
            return False
        if by_number and self._temporal.random.random() < UNKNOWN_NUMBER:
            return False
        self._lives.delete(instance)
        return True

    def listed(self, provider_id: str) -> list[Instance]:
        """The instances that carry the provider's label, as a list shows them: a while ago."""
        lags = self._faults.is_on("lists_lag", provider_id)
        lag_s = self._temporal.random.uniform(0, LISTS_LAG_S if lags else LISTS_S)
        at = self._temporal.now() - timedelta(seconds=lag_s)
        return [
            one
            for one in self._projects.of(provider_id).ever
            if one.made_at <= at and (one.gone_at is None or one.gone_at > at)
        ]

    def operations(self, provider_id: str, name: str, zone: str) -> list[Operation]:
        """The operations on every instance that ever had the name in the zone."""
        return self._projects.of(provider_id).operations.get((name, zone), [])

    def machines(self) -> Iterator[CloudMachine]:
        """All that cost or have cost."""
        for project in self._projects:
            for one in project.ever:
                if one.started_at is not None:
                    yield CloudMachine(
                        name=one.name,
                        provider_id=one.provider_id,
                        zone=one.zone,
                        is_running=one.gone_at is None and one.status != "TERMINATED",
                        made_at=one.started_at,
                        ended_at=one.gone_at,
                        stopped_at=one.stopped_at,
                        ending_at=one.ending_at,
                        came_late=one.came_late,
                    )

    def _check(self, body: Body) -> None:
        """Raises: GoogleRefusedError, when Google takes no instance of this name there."""
        project, asked = self._projects.of(body.provider_id), f"instance {body.name}"
        if project.instance(body.name, body.zone) is not None:
            raise GoogleRefusedError(asked, 409, "alreadyExists", "it already exists")
        if not project.parts.is_there(f"subnetwork/{body.zone.rpartition('-')[0]}"):
            raise GoogleRefusedError(asked, 404, "notFound", "its subnetwork was not found")
        for other in project.there.get(body.name, {}).values():
            if not other.came_late:
                self.violations.append(
                    f"{body.name}: asked for in {body.zone}, while {other.number} in "
                    f"{other.zone} is {other.status}"
                )
