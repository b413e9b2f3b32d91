"""The double as one object: start it, make a key, point the product at its addresses."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from tests.doubles.gcp.access import PROVIDER_ROLES
from tests.doubles.gcp.boot import Boot
from tests.doubles.gcp.cloud import Cloud
from tests.doubles.gcp.control import Control
from tests.doubles.gcp.frontdoor import Frontdoor
from tests.doubles.gcp.project import Project
from tests.doubles.gcp.server import HttpServer

PROJECT = "burst-4711"
"""The project that every double has from the start."""


class GcpDouble:
    """A Google Cloud of our own, for as long as the block lasts.

        with GcpDouble(time_scale=100) as double:
            key = service_account_key(double)
            os.environ |= double.environment

    `cloud` is its state; look and change under `cloud.lock`.
    """

    def __init__(
        self,
        *,
        boot: Boot | None = None,
        time_scale: float = 1.0,
        host: str = "127.0.0.1",
        port: int = 0,
        pubsub_port: int = 0,
    ) -> None:
        from tests.doubles.gcp.pubsub_server import PubSubServer  # a second of importing

        self.cloud = Cloud(time_scale, boot)
        self.door = Frontdoor(self.cloud)
        self._http = HttpServer(self.door, Control(self.cloud, self.door), host, port)
        self.url = self._http.url
        self.door.token_uri = f"{self.url}/token"
        self._pubsub = PubSubServer(self.cloud, host, pubsub_port)
        self.pubsub_address = self._pubsub.address
        self.project = self.cloud.add_project(PROJECT)

    @property
    def environment(self) -> dict[str, str]:
        """The settings by which the product reaches this cloud.

        Its machines share the network of this one, which no wall may close.
        """
        return {
            "BASELOAD_GCP_ENDPOINT": self.url,
            "PUBSUB_EMULATOR_HOST": self.pubsub_address,
            "BASELOAD_JOB_NETWORK_WALL": "false",
        }

    @property
    def violations(self) -> list[str]:
        return self.cloud.violations

    def __enter__(self) -> Self:
        self._http.start()
        self._pubsub.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()
        self._pubsub.close()
        self.cloud.close()


def service_account_key(
    double: GcpDouble,
    *,
    project: Project | None = None,
    account: str = "baseload",
    roles: tuple[str, ...] = PROVIDER_ROLES,
) -> dict[str, Any]:
    """The JSON of a new key of a service account, which is made with these roles if need be."""
    with double.cloud.lock:
        email = double.cloud.add_account(project or double.project, account, roles)
        return double.cloud.credentials.make_key(email, double.door.token_uri)
