"""The notifications of providers, as `activities/providers/notifications.py`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from temporalio.exceptions import ApplicationError

from activities.providers.base import Notification, ProviderError
from activities.providers.gcp.errors import GoogleRefusedError, KeyRefusedError, refused
from activities.providers.gcp.notifications import PULL_S
from activities.providers.gcp.project import translated_errors
from activities.providers.notifications import NEEDED_BY
from tests.simulation.contracts import Attempt, NotFound, Rows, Steps, Temporal, Unavailable, Until
from tests.simulation.outside.clouds.faults import REFUSALS, Asking, Faults, Requests
from tests.simulation.outside.clouds.projects import Project, Projects
from workflows.contracts.lifecycles import workflow_id_of
from workflows.contracts.statuses import ProviderStatus
from workflows.effects.providers import NotificationsReceived, ReceiveNotifications


@dataclass
class Listening:
    """One attempt, with its counts."""

    provider_id: str
    delivered: int = 0
    ignored: int = 0

    def report(self, *, is_over: bool) -> NotificationsReceived:
        return NotificationsReceived(told=self.delivered, ignored=self.ignored, is_over=is_over)


class Feeds:
    """The effect `receive_notifications`."""

    rows: Rows

    def __init__(
        self, temporal: Temporal, faults: Faults, requests: Requests, projects: Projects
    ) -> None:
        self._temporal = temporal
        self._faults = faults
        self._requests = requests
        self._projects = projects

    def receive_notifications(self, attempt: Attempt, command: ReceiveNotifications) -> Steps:
        """Pass notifications on until the time is over, or the provider is removed.

        Raises: as the real one; messages that were not passed on are not settled.
        """
        listening = Listening(command.provider_id)
        try:
            self._requests.need_key(command.provider_id)
            yield from self._listen(listening, command.for_s)
        except ProviderError as error:
            if self._is_over(command.provider_id):
                return listening.report(is_over=True)
            raise ApplicationError(str(error), type=error.kind) from error
        return listening.report(is_over=self._is_over(command.provider_id))

    def wake(self) -> None:
        """Let all that listen look again, because what Google answers has changed."""
        for project in self._projects:
            project.feed.wake()

    def _listen(self, listening: Listening, for_s: float) -> Asking[None]:
        """As `_Listening.to`, without the pulls that bring nothing.

        What has changed at Google ends a wait, as the next of those pulls would show it.
        """
        now, project = self._temporal.now, self._projects.of(listening.provider_id)
        until = now() + timedelta(seconds=for_s)
        while (left := until - now()) > timedelta(0):
            with translated_errors():
                messages = self._pull(listening.provider_id, project)
            if messages:
                self._hand_on(listening, messages)
                project.feed.settle([message.receipt for message in messages])
            elif self._faults.is_on("cloud_refuses", listening.provider_id):
                yield Until(project.feed.changed, min(left.total_seconds(), PULL_S))
            else:
                yield Until(project.feed.changed, left.total_seconds())

    def _pull(self, provider_id: str, project: Project) -> Sequence[Notification]:
        """Raises: GoogleRefusedError, GoogleUnavailableError, KeyRefusedError."""
        asked = f"subscription {project.parts.path('subscription')}"
        if self._faults.is_on("cloud_hangs", provider_id):
            return ()
        if self._requests.is_revoked(provider_id):
            raise KeyRefusedError(f"{asked}: invalid_grant: Invalid JWT Signature.")
        if self._faults.meets("cloud_refuses", provider_id):
            raise refused(asked, *self._temporal.random.choice(REFUSALS))
        if not project.parts.is_there("subscription"):
            raise GoogleRefusedError(asked, 404, "NOT_FOUND", "Resource not found")
        return project.feed.pull()

    def _hand_on(self, listening: Listening, messages: Sequence[Notification]) -> None:
        """Signal each message to its lease; by the request id, a second delivery is dropped.

        Raises: ApplicationError, while Temporal takes no signals.
        """
        leases = {
            view.name: view.lease_id
            for view in self.rows.leases_of(listening.provider_id)
            if view.status in NEEDED_BY
        }
        for message in messages:
            lease_id = leases.get(message.machine_name or "")
            if lease_id is None or message.content is None:
                listening.ignored += 1
                continue
            try:
                self._temporal.signal(
                    workflow_id_of(lease_id), "notified", message.content, request_id=message.id
                )
            except NotFound:
                pass  # As `tell`, which answers that there is no such workflow.
            except Unavailable as cause:
                raise ApplicationError(f"{lease_id}: signal notified", type="RPCError") from cause
            listening.delivered += 1

    def _is_over(self, provider_id: str) -> bool:
        status = self.rows.provider_status(provider_id)
        return status in (None, ProviderStatus.REMOVING, ProviderStatus.ARCHIVED)
