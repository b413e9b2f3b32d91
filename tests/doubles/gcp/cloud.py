"""The whole cloud behind the double: every project and all that is in it, under one lock."""

from __future__ import annotations

import itertools
import secrets
import threading
from typing import Any

from tests.doubles.gcp.access import PROVIDER_ROLES
from tests.doubles.gcp.clock import Clock, Timers
from tests.doubles.gcp.credentials import Credentials
from tests.doubles.gcp.discovery import Json
from tests.doubles.gcp.faults import Faults
from tests.doubles.gcp.project import Project
from tests.doubles.gcp.pubsub import PubSub
from tests.doubles.gcp.quota import Use

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


class Cloud:
    """Everything that exists. `lock` is held by whoever looks or changes.

    violations: what was asked that Google's documents do not know, and whatever broke in the
    double itself; a test in which there are any fails.
    """

    def __init__(self, time_scale: float = 1.0) -> None:
        self.lock = threading.RLock()
        self.violations: list[str] = []
        self.clock = Clock(time_scale)
        self.timers = Timers(self.lock, self._broke)
        self.credentials = Credentials(self.clock)
        self.faults = Faults()
        self.projects: dict[str, Project] = {}
        self.uses: dict[str, Use] = {}
        """What each resource counts against quotas, by its path."""
        self.quotas_unread: set[str] = set()
        """Regions whose quotas Google cannot tell at the moment."""
        self.image_families: dict[str, tuple[str, ...]] = dict(IMAGE_FAMILIES)
        self.pubsub = PubSub()
        self.sinks: dict[str, Json] = {}
        """Log sinks by their paths."""
        self.undelivered: list[tuple[str, str, Json]] = []
        """Log entries that a sink could not deliver: its name, why, and the entry."""
        self._ids = itertools.count(secrets.randbits(62) | 1 << 62)

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

    def _broke(self, error: BaseException) -> None:
        self.violations.append(f"the double broke: {type(error).__name__}: {error}")
