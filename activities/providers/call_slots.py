"""The slots of calls to a marketplace: when the next call of a kind may be made with a key.

They are rows, so that all processes that use one key keep its pauses together.
"""

import hashlib
import threading
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

from sqlmodel import Session, col, delete

from activities.db.session import database
from activities.db.tables import ProviderCallSlot

KEPT = timedelta(days=7)
"""For how long the slot of a key is kept that nobody uses any more."""


_urgent: ContextVar[bool] = ContextVar("urgent", default=False)


@contextmanager
def urgent() -> Generator[None]:
    """The calls of the block end a machine that costs money, so they may wait longer for their
    turn than others, which leave the turns after theirs free."""
    token = _urgent.set(True)
    try:
        yield
    finally:
        _urgent.reset(token)


def is_urgent() -> bool:
    return _urgent.get()


class Slot(Protocol):
    """The slot of one kind of call, while no other caller can change it."""

    free_at: float
    """When the next call may be made, by the clock of the caller, in seconds."""


class Slots(Protocol):
    """The slots of one key."""

    @contextmanager
    def slot(self, call: str) -> Generator[Slot]:
        """The slot of a kind of call; what the block sets is kept unless the block raises."""
        ...


@dataclass
class _Slot:
    free_at: float


@dataclass
class OwnSlots:
    """The slots of a key that this process alone uses. Thread-safe."""

    _free_at: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def slot(self, call: str) -> Generator[Slot]:
        with self._lock:
            slot = _Slot(self._free_at.get(call, float("-inf")))
            yield slot
            self._free_at[call] = slot.free_at


class SharedSlots:
    """The slots of a key that all processes of the installation use; by the clock of the day.

    key: an API key of a provider, of which the rows have the SHA-256 alone.
    """

    def __init__(self, endpoint: str, key: str) -> None:
        self._key = hashlib.sha256(f"{endpoint}\0{key}".encode()).hexdigest()

    @contextmanager
    def slot(self, call: str) -> Generator[Slot]:
        with database().write(f"provider-call/{self._key}/{call}") as session:
            row = session.get(ProviderCallSlot, (self._key, call))
            before = row.free_at.timestamp() if row is not None else float("-inf")
            slot = _Slot(before)
            yield slot
            if slot.free_at != before:
                free_at = datetime.fromtimestamp(slot.free_at, UTC)
                session.merge(ProviderCallSlot(key_sha256=self._key, call=call, free_at=free_at))
            if row is None:
                _forget_old(session)


def _forget_old(session: Session) -> None:
    old = datetime.now(UTC) - KEPT
    session.exec(delete(ProviderCallSlot).where(col(ProviderCallSlot.free_at) < old))
