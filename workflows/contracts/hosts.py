"""Hosts: what nodes and devices have in common, machines that the platform reaches over SSH.

Their lifecycles share the parts in `workflows/hosts/`.
"""

from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Self

from workflows.contracts.base import Contract
from workflows.contracts.removals import Removal


@dataclass(frozen=True)
class HostEvents:
    """The types of the events that every host has, of one noun."""

    back: StrEnum
    host_key_refused: StrEnum
    incomplete: StrEnum
    inspected: StrEnum
    logins_closed: StrEnum
    move_refused: StrEnum
    moved: StrEnum
    offline: StrEnum
    restarted: StrEnum
    restarting: StrEnum

    @classmethod
    def of(cls, events: type[StrEnum]) -> Self:
        """Those of a noun. Raises: KeyError, when the noun lacks one of them."""
        return cls(**{each.name: events[each.name.upper()] for each in fields(cls)})


class HostRequest(Contract):
    """What the lifecycle of every host knows of it from its row."""

    account_id: str
    region_id: str
    name: str
    minion_id: str
    """The minion id; empty until the leased machine of a node exists."""
    host: str | None = None
    port: int = 22
    user: str = "root"
    root: str | None = None
    own_worker: bool = False
    """Whether a worker process in the region's own network serves the region."""
    exclusive: bool = True
    """Whether the machine serves the platform alone, so that other logins are closed."""
    relaxed_requirements: tuple[str, ...] = ()
    sequence: int = 0
    """The sequence of the last step, if an earlier workflow run recorded one."""

    @property
    def host_id(self) -> str:
        """The id of the node or device."""
        raise NotImplementedError

    @property
    def noun(self) -> str:
        raise NotImplementedError

    @property
    def events(self) -> HostEvents:
        raise NotImplementedError

    @property
    def is_leased(self) -> bool:
        """Whether the platform has created the machine."""
        return False

    @property
    def has_own_key(self) -> bool:
        """Whether the machine lets in a key of its own, and not its region's."""
        return False

    @property
    def leased_from(self) -> str:
        """The provider kind of a leased machine; empty: it is not leased."""
        return ""

    @property
    def relaxed(self) -> tuple[str, ...]:
        """Requirements that are waived."""
        return self.relaxed_requirements

    @property
    def progress(self) -> "HostProgress | None":
        """The progress of an earlier workflow run; None: there was none."""
        raise NotImplementedError


class HostProgress(Contract):
    """What the next workflow run of every host must know of it."""

    sequence: int
    host: str | None
    port: int
    user: str
    root: str | None
    boot_id: str = ""
    inspected_boot_id: str = ""
    minion_id: str = ""
    """The minion id of the host's machine; empty: the minion id of the request."""
    reason: str | None = None
    """The reason of the status."""
    removal: Removal | None = None
    """The removal that was accepted; None: there is none."""
    is_adopted: bool = False
    """Whether the progress is from the row, so that something may have happened unseen since."""


class Announcement(Contract):
    """The last announcement of a machine: its address and the minion id that it claims."""

    minion_id: str
    host: str
    port: int
    user: str = "root"
    at: datetime | None = None
    """When the machine announced itself last."""
