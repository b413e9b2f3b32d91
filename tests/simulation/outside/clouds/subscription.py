"""The Pub/Sub subscription of a provider, and the entries of the audit log that come to it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from activities.providers.base import Notification
from activities.providers.gcp.audit_log import read_notification
from activities.providers.gcp.names import PREFIX
from activities.providers.gcp.notifications import AT_ONCE
from activities.providers.gcp.pubsub import ACK_DEADLINE_S
from tests.simulation.contracts import Event, Temporal
from tests.simulation.outside.clouds.instances import Instance

COMES_S = (0.5, 20.0)
"""How long an entry takes from the audit log to the subscription; they overtake each other."""
COMES_LATE = 0.03
LATE_S = (60.0, 1200.0)
COMES_TWICE = 0.05
"""The share of settled messages that come again all the same."""
BY_GOOGLE = frozenset({"compute.instances.preempted", "compute.instances.hostError"})
"""The methods of actions of Google itself, which are in the log of system events."""


@dataclass
class Message:
    message_id: str
    data: bytes


@dataclass
class Subscription:
    """What waits for us at Google, at least once each and in no order.

    is_silent: whether nothing is delivered now; what comes meanwhile waits.
    """

    temporal: Temporal
    is_silent: Callable[[], bool]
    waiting: list[Message] = field(default_factory=list)
    pulled: dict[str, Message] = field(default_factory=dict)
    """What was delivered and is not settled, by its receipt."""
    changed: Event = field(default_factory=Event)
    """Set once, when somebody who waits for messages has to look again; then there is another."""
    _count: int = 0

    def log(self, instance: Instance, method: str) -> None:
        """Write one entry about an instance, which the sink passes on.

        method: such as `delete`, or in full for an action of Google itself.
        """
        if not instance.name.startswith(PREFIX):
            return  # As the filter of gcp/pubsub.py:notification_filter.
        self._count += 1
        number = f"{instance.number}-{self._count}"
        entry = {
            "insertId": f"entry-{number}",
            "timestamp": self.temporal.now().isoformat(),
            "severity": "NOTICE",
            "operation": {"id": f"operation-{instance.number}-{method}"},
            "resource": {"labels": {"instance_id": str(instance.number)}},
            "protoPayload": {
                "methodName": method if method in BY_GOOGLE else f"v1.compute.instances.{method}",
                "resourceName": f"projects/p/zones/{instance.zone}/instances/{instance.name}",
            },
        }
        self._send(Message(f"message-{number}", json.dumps(entry).encode()))

    def pull(self) -> Sequence[Notification]:
        """As gcp/notifications.py:GoogleNotifications.next, of what is there now."""
        if self.is_silent() or not self.waiting:
            return ()
        self.temporal.random.shuffle(self.waiting)
        some, self.waiting = self.waiting[:AT_ONCE], self.waiting[AT_ONCE:]
        found = []
        for message in some:
            self._count += 1
            receipt = f"receipt-{self._count}"
            self.pulled[receipt] = message
            found.append(
                read_notification(message.data, receipt=receipt, message_id=message.message_id)
            )
        receipts = [each.receipt for each in found]
        self.temporal.later(ACK_DEADLINE_S, lambda: self._return(receipts))
        return found

    def settle(self, receipts: Sequence[str]) -> None:
        for receipt in receipts:
            message = self.pulled.pop(receipt, None)
            if message is not None and self.temporal.random.random() < COMES_TWICE:
                self._send(message)

    def wake(self) -> None:
        """Let whoever listens look again, because what Google answers has changed."""
        changed, self.changed = self.changed, Event()
        changed.set()

    def _send(self, message: Message) -> None:
        random = self.temporal.random
        late = random.random() < COMES_LATE
        seconds = random.uniform(*(LATE_S if late else COMES_S))

        def come() -> None:
            self.waiting.append(message)
            self.wake()

        self.temporal.later(seconds, come)

    def _return(self, receipts: Sequence[str]) -> None:
        """Deliver again what was not settled within the deadline."""
        left = [self.pulled.pop(receipt) for receipt in receipts if receipt in self.pulled]
        if left:
            self.waiting += left
            self.wake()
