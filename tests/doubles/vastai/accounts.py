"""Vast.ai's account: who it is, what it has left, and the public keys that its instances let in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.doubles.rented.clock import rfc3339

USER_ID = 4711


@dataclass
class Account:
    """balance: USD, before what the meter has counted."""

    balance: float = 1000.0
    keys: list[dict[str, Any]] = field(default_factory=list)

    def add_key(self, key: str, now: float) -> dict[str, Any]:
        row = {
            "id": 100 + len(self.keys), "user_id": USER_ID, "key": key.strip(),
            "created_at": rfc3339(now), "deleted_at": None,
        }  # fmt: skip
        self.keys.append(row)
        return row
