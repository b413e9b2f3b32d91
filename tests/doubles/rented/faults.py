"""What goes wrong on purpose: scripted, counted, and only where it is asked for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any


class FaultKind(StrEnum):
    """Where a fault strikes: at the door (the first seven), in a rental, or in a machine."""

    LOST_REQUEST = "lost_request"
    """The connection is cut before anything was done."""
    LOST_REPLY = "lost_reply"
    """The thing is done and the connection is cut before the answer."""
    ERROR = "error"
    """The status `status` (500 where none is given), nothing done."""
    ERROR_AFTER = "error_after"
    """The thing is done and the answer is the status `status` (502 where none is given)."""
    TOO_MANY = "too_many"
    """429 as that cloud writes it, nothing done."""
    HANG = "hang"
    """The thing is done and the answer does not come before the fault is cleared."""
    DELAY = "delay"
    """The thing is done and the answer comes `seconds` later by the cloud's clock."""
    NO_CAPACITY = "no_capacity"
    """What was offered is gone between the search and the rental."""
    OTHER_MACHINE = "other_machine"
    """The machine has other GPUs than the ones that were asked for."""
    DEARER = "dearer"
    """The machine costs `factor` times what was offered."""
    FAILED_BUT_MADE = "failed_but_made"
    """An error that carries a contract nevertheless, which is charged (Vast.ai)."""
    FAILED_WITH_200 = "failed_with_200"
    """HTTP 200 with `success: false`, nothing done (Vast.ai)."""
    SCHEDULED = "scheduled"
    """The offer is gone, and what comes is a stopped instance that waits for it (Vast.ai)."""
    NEVER_STARTS = "never_starts"
    """The container cannot be made."""
    PORTS_LATE = "ports_late"
    """The ports are known `seconds` after the machine runs."""
    NO_PORTS = "no_ports"
    """The machine runs and never has a public port."""
    OWN_HOST_KEY = "own_host_key"
    """The image starts its own sshd first, with a host key that nobody has chosen."""
    NO_SSH = "no_ssh"
    """The machine runs, has its ports, and nothing answers there."""
    VANISH = "vanish"
    """The host vanishes `seconds` after the machine runs."""


AT_THE_DOOR = frozenset(list(FaultKind)[:7])
IN_THE_RENTAL = frozenset(list(FaultKind)[7:13])
IN_THE_MACHINE = frozenset(list(FaultKind)[13:])


@dataclass
class Fault:
    """One script: of the calls that match, skip some, then strike every so-manieth, so many times.

    call, name: patterns of the call (`pods.create`, `instances.*`) and of the name of the machine;
    `*` is any. times: None is for ever.
    """

    kind: FaultKind
    call: str = "*"
    name: str = "*"
    skip: int = 0
    every: int = 1
    times: int | None = 1
    seconds: float = 0.0
    status: int = 0
    factor: float = 1.5
    seen: int = 0
    struck: int = 0

    def strikes(self, call: str, name: str) -> bool:
        """Whether this call is hit; it is counted as seen if it matches."""
        if not (fnmatchcase(call, self.call) and fnmatchcase(name, self.name)):
            return False
        self.seen += 1
        if self.seen <= self.skip or (self.seen - self.skip) % self.every:
            return False
        if self.times is not None and self.struck >= self.times:
            return False
        self.struck += 1
        return True

    def shown(self) -> dict[str, Any]:
        return {**vars(self), "kind": self.kind.value}


@dataclass
class Faults:
    """Every fault that waits or has struck, and until when the cloud is away as a whole."""

    scripted: list[Fault] = field(default_factory=list)
    away_until: float = 0.0
    """By the cloud's clock."""
    turned_away: int = 0

    def add(self, fault: Fault) -> Fault:
        self.scripted.append(fault)
        return fault

    def clear(self) -> None:
        self.scripted.clear()
        self.away_until = 0.0

    def take(self, kinds: frozenset[FaultKind], call: str, name: str) -> Fault | None:
        """The first fault of these kinds that strikes this call."""
        for fault in self.scripted:
            if fault.kind in kinds and fault.strikes(call, name):
                return fault
        return None

    def count(self) -> dict[str, int]:
        """How often each kind has struck."""
        counted: Counter[str] = Counter()
        for fault in self.scripted:
            counted[fault.kind.value] += fault.struck
        if self.turned_away:
            counted["away"] = self.turned_away
        return dict(counted)
