"""The whole cloud behind the double: every project and all that is in it, under one lock."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.doubles.gcp.access import PROVIDER_ROLES
from tests.doubles.gcp.audit import Audit
from tests.doubles.gcp.boot import Boot, NoBoot
from tests.doubles.gcp.clock import Clock, Timers
from tests.doubles.gcp.credentials import Credentials
from tests.doubles.gcp.discovery import Json
from tests.doubles.gcp.faults import Faults
from tests.doubles.gcp.machines import Machines
from tests.doubles.gcp.meter import Meter
from tests.doubles.gcp.project import Project
from tests.doubles.gcp.pubsub import PubSub
from tests.doubles.gcp.quota import Uses
from tests.doubles.gcp.resources import Resources
from tests.doubles.gcp.skus import usual_skus
from tests.doubles.gcp.stock import Stock

IMAGE_FAMILIES = {
    "deeplearning-platform-release": (
        "common-cu129-ubuntu-2404-nvidia-580",
        "common-cu128-ubuntu-2204-nvidia-570",
        "common-cu124-ubuntu-2204-py310",
    ),
    "debian-cloud": ("debian-12", "debian-13"),
    "ubuntu-os-cloud": ("ubuntu-2204-lts", "ubuntu-2404-lts-amd64"),
}
"""Families of images by the public project that offers them."""
FIRST_NUMBER = 415_104_041_262


@dataclass
class Durations:
    """How long the cloud takes for what, before `time_scale` compresses it; in seconds."""

    network_s: float = 8.0
    """Networks, subnetworks and firewalls, each way."""
    disk_s: float = 3.0
    insert_s: float = 12.0
    """From the request until the VM is RUNNING."""
    ssh_s: float = 20.0
    """From RUNNING until port 22 is open."""
    delete_s: float = 25.0
    stop_s: float = 30.0
    start_s: float = 12.0
    change_s: float = 1.0
    """Labels, metadata and the like."""


class Cloud:
    """Everything that exists. `lock` is held by whoever looks or changes.

    violations: what was asked that Google's documents do not know, and whatever broke in the
    double itself; a test in which there are any fails.
    """

    def __init__(self, time_scale: float = 1.0, boot: Boot | None = None) -> None:
        self.lock = threading.RLock()
        self.violations: list[str] = []
        self.clock = Clock(time_scale)
        self.timers = Timers(self.lock, self._broke)
        self.credentials = Credentials(self.clock)
        self.faults = Faults()
        self.projects: dict[str, Project] = {}
        self.uses = Uses()
        """What each resource counts against quotas, by its path."""
        self.quotas_unread: set[str] = set()
        """Regions whose quotas Google cannot tell at the moment."""
        self.knows_numbers = True
        """Whether an instance is found by its number too, and not by its name alone."""
        self.image_families: dict[str, tuple[str, ...]] = dict(IMAGE_FAMILIES)
        self.durations = Durations()
        self.resources = Resources()
        self.requests: dict[tuple[str, str], tuple[str, str]] = {}
        """The method and the operation's path of each request id of a project."""
        self.pubsub = PubSub()
        self.audit = Audit(self, self.later)
        self.sinks: dict[str, Json] = {}
        """Log sinks by their paths."""
        self.undelivered: list[tuple[str, str, Json]] = []
        """Log entries that a sink could not deliver: its name, why, and the entry."""
        self.stock = Stock()
        self.meter = Meter()
        self.skus = usual_skus()
        """What the Cloud Billing Catalog has of Compute Engine."""
        self.machines = Machines(self, boot or NoBoot())
        self._ids = itertools.count(secrets.randbits(62) | 1 << 62)

    def later(self, cloud_s: float, action: Callable[[], object]) -> None:
        """Do it in so many seconds of the cloud's own time."""
        self.timers.after(self.clock.real_s(cloud_s), action)

    def new_id(self) -> str:
        """A number as Compute Engine gives to each resource and operation."""
        return str(next(self._ids))

    def add_project(self, project_id: str, **settings: Any) -> Project:
        """A project with billing, every API switched on and its default service account.

        settings: of `Project`; what is left out is as in a project that works.
        """
        with self.lock:
            number = str(FIRST_NUMBER + len(self.projects))
            project = Project(project_id, **{"number": number, **settings})
            self.projects[project_id] = project
            self.credentials.add(
                project.compute_account, project.id, self.new_id(), "Compute Engine default"
            )
            return project

    def find_project(self, name: str) -> Project | None:
        """A project by its id or number."""
        if name in self.projects:
            return self.projects[name]
        return next((each for each in self.projects.values() if each.number == name), None)

    def add_account(
        self, project: Project, name: str, roles: tuple[str, ...] = PROVIDER_ROLES
    ) -> str:
        """A service account with these roles in its project; the e-mail address."""
        with self.lock:
            email = f"{name}@{project.id}.iam.gserviceaccount.com"
            self.credentials.add(email, project.id, self.new_id(), name)
            project.grant(email, *roles)
            return email

    def close(self) -> None:
        self.timers.close()
        self.machines.close()

    def _broke(self, error: BaseException) -> None:
        self.violations.append(f"the double broke: {type(error).__name__}: {error}")
