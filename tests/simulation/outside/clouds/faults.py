"""What is wrong with the clouds now, and how Google answers a request meanwhile."""

from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, TypeVar

from activities.providers.base import RequestRefused
from activities.providers.gcp.errors import (
    GoogleRefusedError,
    GoogleUnavailableError,
    KeyRefusedError,
    refused,
)
from activities.providers.gcp.session import ANSWER_LIMIT_S
from tests.simulation.contracts import Attempt, Rows, Sleep, Steps, Temporal, Until

FAULTS = (
    "cloud_hangs",
    "cloud_refuses",
    "cloud_forgets",
    "lists_lag",
    "makes_late",
    "makes_twice",
    "no_capacity",
    "feed_silent",
    "key_revoked",
    "key_late",
    "boots_mute",
)
"""What lasts: for the seconds of its strike, or until `heal`."""
ANSWER_S = (0.05, 0.8)
HANGS_FOREVER = 0.2
"""The share of hanging requests that not even the client's own limit ends."""
FOREVER_S = 24 * 3600.0
REFUSALS = (
    (403, "forbidden", "Required permission is missing"),
    (429, "rateLimitExceeded", "Quota exceeded for quota metric 'Queries'"),
    (503, "backendError", "The service is currently unavailable"),
)
"""The HTTP status, the reason and the message; the first is final, the others pass."""

Answer = TypeVar("Answer")
Asking = Generator[Sleep | Until, Any, Answer]
"""A request: it yields the time that it takes, and returns the answer."""
Call = Callable[[Attempt, Any], Steps]
"""An effect that asks Google."""


class Faults:
    """The faults that are on, each with its targets: a provider, a zone, or empty for all."""

    def __init__(self, temporal: Temporal) -> None:
        self._temporal = temporal
        self._on: dict[str, dict[str, object]] = {}

    def strike(self, what: str, target: str, seconds: float) -> None:
        """Begin a fault; a second strike at the same target replaces the first one's end."""
        strike = object()
        self._on.setdefault(what, {})[target] = strike

        def end() -> None:
            if self._on.get(what, {}).get(target) is strike:
                del self._on[what][target]

        if seconds > 0:
            self._temporal.later(seconds, end)

    def heal(self) -> None:
        self._on.clear()

    def is_on(self, what: str, provider_id: str, zone: str = "") -> bool:
        targets = self._on.get(what)
        if not targets:
            return False
        return "" in targets or provider_id in targets or (zone != "" and zone in targets)

    def meets(self, what: str, provider_id: str, zone: str = "") -> bool:
        """Whether a fault that meets every second request meets this one."""
        return self.is_on(what, provider_id, zone) and self._temporal.random.random() < 0.5


class Requests:
    """Requests with the keys of providers to Google, as `activities/providers/gcp/session.py`."""

    rows: Rows

    def __init__(self, temporal: Temporal, faults: Faults) -> None:
        self._temporal = temporal
        self._faults = faults

    def key_mistake(self, provider_id: str) -> str:
        """Why there is no key, as secrets/credentials.py:credentials_of; empty: there is one."""
        if self.rows.has_key(provider_id):
            return ""
        return f"key of {provider_id}: there is no such key in the store"

    def need_key(self, provider_id: str) -> None:
        """Raises: RequestRefused, as gcp/driver.py:google_machines."""
        if mistake := self.key_mistake(provider_id):
            raise RequestRefused(mistake)

    def is_revoked(self, provider_id: str) -> bool:
        return self._faults.is_on("key_revoked", provider_id)

    def read(
        self, provider_id: str, asked: str, look: Callable[[], Answer], zone: str = ""
    ) -> Asking[Answer]:
        """Ask for what is there when the answer is sent.

        Raises: GoogleUnavailableError, GoogleRefusedError, KeyRefusedError; whatever `look` raises.
        """
        yield from self._trouble(provider_id, asked, zone)
        yield Sleep(self._temporal.random.uniform(*ANSWER_S))
        return look()

    def change(
        self, provider_id: str, asked: str, act: Callable[[], Answer], zone: str = ""
    ) -> Asking[Answer]:
        """Ask for a change, which Google makes at once, whatever becomes of the one who has asked.

        Raises: as `read`; after GoogleUnavailableError the change may have been made.
        """
        random = self._temporal.random
        if self._faults.meets("cloud_hangs", provider_id, zone):
            with suppress(GoogleRefusedError, GoogleUnavailableError):
                act()
        yield from self._trouble(provider_id, asked, zone)
        answer = act()
        yield Sleep(random.uniform(*ANSWER_S))
        if self._faults.meets("cloud_forgets", provider_id, zone):
            yield Sleep(random.choice((0.0, ANSWER_LIMIT_S)))
            raise GoogleUnavailableError(f"{asked}: no answer: ConnectionError")
        return answer

    def _trouble(self, provider_id: str, asked: str, zone: str) -> Asking[None]:
        """Raises: GoogleUnavailableError, GoogleRefusedError, KeyRefusedError, by the faults."""
        random = self._temporal.random
        if self._faults.is_on("cloud_hangs", provider_id, zone):
            hangs_forever = random.random() < HANGS_FOREVER
            yield Sleep(FOREVER_S if hangs_forever else ANSWER_LIMIT_S)
            raise GoogleUnavailableError(f"{asked}: no answer: ReadTimeout")
        if self.is_revoked(provider_id):
            yield Sleep(random.uniform(*ANSWER_S))
            raise KeyRefusedError(f"{asked}: invalid_grant: Invalid JWT Signature.")
        if self._faults.meets("cloud_refuses", provider_id, zone):
            yield Sleep(random.uniform(*ANSWER_S))
            raise refused(asked, *random.choice(REFUSALS))
