"""Topics, subscriptions and messages in flight: at least once, in no order, until acknowledged."""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

DELETED_TOPIC = "_deleted-topic_"


@dataclass(frozen=True)
class Message:
    data: bytes
    attributes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    ordering_key: str = ""
    id: str = ""
    published_at: float = 0.0


@dataclass(frozen=True)
class Delivered:
    ack_id: str
    message: Message
    attempt: int


@dataclass
class _Copy:
    """A message as one subscription has it; ack_id: of its latest delivery."""

    message: Message
    visible_at: float
    ack_id: str = ""
    attempts: int = 0


@dataclass
class Topic:
    """settings: the description that it was made with, as the server's protocol has it."""

    name: str
    settings: bytes = b""
    policy: dict[str, set[str]] = field(default_factory=dict)
    """Members by role."""

    @property
    def etag(self) -> bytes:
        told = {role: sorted(members) for role, members in sorted(self.policy.items())}
        return uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(told)).bytes[:8]


@dataclass
class Subscription:
    """settings: the description that it was made with, as the server's protocol has it."""

    name: str
    topic: str
    ack_deadline_s: int
    settings: bytes = b""
    waiting: list[_Copy] = field(default_factory=list)


class PubSub:
    """All of Pub/Sub, under a lock of its own; `changed` wakes whoever waits for messages.

    duplicate_every: every so-manieth message is delivered twice; 0 is none.
    shuffle: messages that wait together are delivered in any order.
    pull_waits_s: how long a pull waits for a first message before it answers with none.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.topics: dict[str, Topic] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.duplicate_every = 0
        self.shuffle = False
        self.pull_waits_s = 10.0
        self.delivered = 0
        self.pulls = 0
        """How often it was asked for messages."""
        self._published = 0
        self._ids = itertools.count(random.randrange(10**15, 10**16))
        self._random = random.Random(4711)

    def publish(self, topic: str, message: Message) -> str:
        """Hand a message to every subscription of the topic, which exists; the message's id."""
        with self.changed:
            self._published += 1
            given = Message(
                message.data,
                message.attributes,
                message.ordering_key,
                str(next(self._ids)),
                time.time(),
            )
            twice = self.duplicate_every and self._published % self.duplicate_every == 0
            for subscription in self.subscriptions.values():
                if subscription.topic == topic:
                    subscription.waiting += [_Copy(given, 0.0) for _ in range(2 if twice else 1)]
            self.changed.notify_all()
            return given.id

    def pull(self, name: str, most: int) -> list[Delivered]:
        """What may be delivered now; each is hidden until its deadline passes."""
        with self.changed:
            self.pulls += 1
            subscription = self.subscriptions[name]
            now = time.monotonic()
            ready = [copy for copy in subscription.waiting if copy.visible_at <= now]
            if self.shuffle:
                self._random.shuffle(ready)
            return [self._deliver(copy, subscription, now) for copy in ready[:most]]

    def _deliver(self, copy: _Copy, subscription: Subscription, now: float) -> Delivered:
        copy.ack_id = f"{subscription.name.rsplit('/', 1)[1]}:{uuid.uuid4().hex}"
        copy.visible_at = now + subscription.ack_deadline_s
        copy.attempts += 1
        self.delivered += 1
        return Delivered(copy.ack_id, copy.message, copy.attempts)

    def acknowledge(self, name: str, ack_ids: list[str]) -> None:
        """Those messages are done with; an acknowledgement that comes too late does nothing."""
        with self.changed:
            subscription = self.subscriptions[name]
            now = time.monotonic()
            subscription.waiting = [
                copy
                for copy in subscription.waiting
                if copy.ack_id not in ack_ids or copy.visible_at <= now
            ]

    def extend(self, name: str, ack_ids: list[str], deadline_s: int) -> None:
        """Move the deadline of those deliveries; 0 s gives them back at once."""
        with self.changed:
            for copy in self.subscriptions[name].waiting:
                if copy.ack_id in ack_ids:
                    copy.visible_at = time.monotonic() + deadline_s if deadline_s else 0.0
            self.changed.notify_all()

    def redeliver(self, name: str) -> None:
        """As if every ack deadline had passed: what is not acknowledged comes again."""
        with self.changed:
            for copy in self.subscriptions[name].waiting:
                copy.visible_at = 0.0
            self.changed.notify_all()

    def next_visible_s(self, name: str) -> float:
        """How long until a hidden message may come again; a minute if there is none."""
        subscription = self.subscriptions.get(name)
        now = time.monotonic()
        waits = [copy.visible_at - now for copy in subscription.waiting] if subscription else []
        return max(0.0, min(waits, default=60.0))

    def delete_topic(self, name: str) -> None:
        """Its subscriptions stay, and get nothing any more."""
        with self.changed:
            del self.topics[name]
            for subscription in self.subscriptions.values():
                if subscription.topic == name:
                    subscription.topic = DELETED_TOPIC
