"""What goes wrong on purpose: scripted, counted, and only where it is asked for."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from tests.doubles.gcp.errors import RefusedError


class FaultKind(StrEnum):
    """Where a fault strikes: at the door, in an operation, or in a machine."""

    LOST_REQUEST = "lost_request"
    """The connection is cut before anything was done."""
    LOST_REPLY = "lost_reply"
    """The thing is done and the connection is cut before the answer."""
    QUOTA = "quota"
    """403 quotaExceeded at once."""
    RATE_LIMIT = "rate_limit"
    """429 rateLimitExceeded."""
    UNAVAILABLE = "unavailable"
    """503 backendError, nothing done."""
    FORBIDDEN = "forbidden"
    """403 forbidden, as if the permission had been taken away."""
    CONFLICT = "conflict"
    """409 alreadyExists, whatever exists."""
    STOCKOUT_AT_ONCE = "stockout_at_once"
    """503 with ZONE_RESOURCE_POOL_EXHAUSTED instead of an operation."""
    SLOW = "slow"
    """The answer comes `seconds` late, or when the fault is cleared."""
    STOCKOUT = "stockout"
    """The operation ends with ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS."""
    OPERATION_QUOTA = "operation_quota"
    """The operation ends with QUOTA_EXCEEDED."""
    PREEMPTED_IN_CREATION = "preempted_in_creation"
    """The operation ends with UNSUPPORTED_OPERATION, as when Google takes the VM back so early."""
    OPERATION_HANGS = "operation_hangs"
    """The thing is done and its operation stays RUNNING for ever."""
    NOTHING_HAPPENS = "nothing_happens"
    """The operation stays RUNNING for ever and the thing is never done."""
    NO_SSH = "no_ssh"
    """The VM runs and never opens port 22."""
    WRONG_HOST_KEY = "wrong_host_key"
    """The guest attributes publish another host key than the VM has."""
    PREEMPT = "preempt"
    """The VM is preempted `seconds` after it runs."""
    HOST_ERROR = "host_error"
    """The VM's host fails `seconds` after it runs."""


AT_THE_DOOR = frozenset(
    {
        FaultKind.LOST_REQUEST,
        FaultKind.LOST_REPLY,
        FaultKind.QUOTA,
        FaultKind.RATE_LIMIT,
        FaultKind.UNAVAILABLE,
        FaultKind.FORBIDDEN,
        FaultKind.CONFLICT,
        FaultKind.STOCKOUT_AT_ONCE,
        FaultKind.SLOW,
    }
)
IN_THE_OPERATION = frozenset(
    {
        FaultKind.STOCKOUT,
        FaultKind.OPERATION_QUOTA,
        FaultKind.PREEMPTED_IN_CREATION,
        FaultKind.OPERATION_HANGS,
        FaultKind.NOTHING_HAPPENS,
    }
)
AT_BOOT = frozenset(
    {FaultKind.NO_SSH, FaultKind.WRONG_HOST_KEY, FaultKind.PREEMPT, FaultKind.HOST_ERROR}
)


@dataclass
class Fault:
    """One script: of the calls that match, skip some, then strike every so-manieth, so many times.

    method, name: patterns of the method's id (`compute.instances.*`, `token`) and of the name of
    the resource that is asked for or made; `*` is any. times: None is for ever.
    """

    kind: FaultKind
    method: str = "*"
    name: str = "*"
    skip: int = 0
    every: int = 1
    times: int | None = 1
    seconds: float = 0.0
    seen: int = 0
    struck: int = 0

    def strikes(self, method: str, name: str) -> bool:
        """Whether this call is hit; it is counted as seen if it matches."""
        if not (fnmatchcase(method, self.method) and fnmatchcase(name, self.name)):
            return False
        self.seen += 1
        if self.seen <= self.skip or (self.seen - self.skip) % self.every:
            return False
        if self.times is not None and self.struck >= self.times:
            return False
        self.struck += 1
        return True

    def told(self) -> dict[str, Any]:
        return {**vars(self), "kind": self.kind.value}


@dataclass
class Faults:
    """Every fault that waits or has struck, and whether the cloud can be reached at all."""

    scripted: list[Fault] = field(default_factory=list)
    unreachable_until: float = 0.0
    """By `time.monotonic()`."""
    turned_away: int = 0
    """HTTP calls that were cut meanwhile; what Pub/Sub's clients try again is not counted."""

    def add(self, fault: Fault) -> Fault:
        self.scripted.append(fault)
        return fault

    def clear(self) -> None:
        self.scripted.clear()
        self.unreachable_until = 0.0

    def unreachable_for(self, real_s: float) -> None:
        """Every connection is cut for so long, that of the token endpoint and Pub/Sub as well."""
        self.unreachable_until = time.monotonic() + real_s

    def is_unreachable(self) -> bool:
        return time.monotonic() < self.unreachable_until

    def take(self, kinds: frozenset[FaultKind], method: str, name: str) -> Fault | None:
        """The first fault of these kinds that strikes this call."""
        for fault in self.scripted:
            if fault.kind in kinds and fault.strikes(method, name):
                return fault
        return None

    def count(self) -> dict[str, int]:
        """How often each kind has struck."""
        counted: Counter[str] = Counter()
        for fault in self.scripted:
            counted[fault.kind.value] += fault.struck
        if self.turned_away:
            counted["unreachable"] = self.turned_away
        return dict(counted)


def refusal(fault: Fault, resource: str) -> RefusedError | None:
    """The error that a fault at the door answers with; None: it answers with none."""
    usage = "usageLimits"
    by_kind = {
        FaultKind.QUOTA: RefusedError(
            403, "quotaExceeded", "Quota 'INSTANCES' exceeded.  Limit: 0.0.", domain=usage
        ),
        FaultKind.RATE_LIMIT: RefusedError(
            429,
            "rateLimitExceeded",
            "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute' of service "
            "'compute.googleapis.com'.",
            domain=usage,
        ),
        FaultKind.UNAVAILABLE: RefusedError(
            503, "backendError", "The service is currently unavailable. Please try again."
        ),
        FaultKind.FORBIDDEN: RefusedError(403, "forbidden", "The caller does not have permission"),
        FaultKind.CONFLICT: RefusedError.exists(resource),
        FaultKind.STOCKOUT_AT_ONCE: RefusedError(
            503,
            "ZONE_RESOURCE_POOL_EXHAUSTED",
            f"The resource '{resource}' does not have enough resources available to fulfill the "
            "request.  Try a different zone, or try again later.",
        ),
    }
    return by_kind.get(fault.kind)
