"""The only reader of the environment: every setting of every process, prefix `BASELOAD_`."""

import os
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Settings of one process; a missing one has the embedded default under `home`."""

    model_config = SettingsConfigDict(env_prefix="BASELOAD_", frozen=True, extra="ignore")

    home: Path = Field(default_factory=lambda: Path.home() / ".baseload")
    api: str = "127.0.0.1:8700"
    """Where the API listens, host:port."""
    database_url: str | None = None
    """SQLAlchemy URL; None: SQLite at `home/baseload.db`."""
    storage_url: str | None = None
    """fsspec URL of the store of uploads, logs, outputs and sealed work orders."""
    ssh_key: Path | None = None
    """The platform's private SSH key; None: `home/keys/platform_ed25519`."""
    secrets_key: str | None = None
    """The master key as 64 hex digits; None: `home/keys/master.key`, made at the first start."""

    temporal_address: str = "127.0.0.1:7233"
    temporal_namespace: str = "default"
    temporal_api_key: str | None = None
    temporal_tls_cert: Path | None = None
    temporal_tls_key: Path | None = None

    sites: str = "*"
    """Regions whose queue this worker polls, with commas between: ids, or `*`, from which `-ID`
    leaves out one that has a worker in its own network."""

    gcp_endpoint: str | None = None
    """One base URL under which every HTTP API of Google's answers at its own path; None: Google."""
    gcp_ssh_source_ranges: str = "0.0.0.0/0"
    """From where machines at Google may be reached over SSH: CIDRs with commas between."""
    gcp_image: str = (
        "projects/deeplearning-platform-release/global/images/family/"
        "common-cu129-ubuntu-2404-nvidia-580"
    )
    """What machines with GPUs at Google boot; CUDA 12, which still knows P100 and V100."""
    gcp_plain_image: str = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
    """What machines without GPUs boot there, such as storage nodes."""

    region_cache_port: int = 8710
    """Where the storage node of a region in a cloud serves its cache to the region's machines."""
    region_cache_max_bytes: int | None = None
    """How much it keeps at most; None: four fifths of its disk, more than which it never keeps."""
    package_index_url: str | None = None
    """The index of Python packages behind it, such as `https://pypi.org/simple`; None: the one that
    the storage node itself is told of in its pip configuration."""

    ephemeral_lifetime_s: int = 7 * 86_400
    """How long a machine that is made for one job lives at most: then it is ended, by its cloud if
    all of us were dead, and the job begins again elsewhere. Google takes at most 120 days."""
    cpu_core_hour_microcredits: int = 0
    """Usage fee for one CPU core and hour on own machines; 0: CPUs are free."""
    upload_max_bytes: int = 2 * 1024**3
    upload_max_unpacked_bytes: int = 20 * 1024**3
    request_max_bytes: int = 1024**2
    announcements_per_minute: int = 60
    job_unreachable_limit_s: int = 3600
    job_end_grace_s: int = 10
    state_interval_s: int = Field(default=300, ge=10)
    """How often a job's resume state is copied off a machine that can be lost."""
    state_max_bytes: int = 10 * 1024**3
    """A resume state that is larger is not copied."""
    billing_period_s: int = 3600
    """Length of a billing period; an hour but in tests."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_json: bool | None = None
    """Whether log lines are JSON; None: where they go to no terminal."""
    metrics: str | None = None
    """Where a worker shows its Prometheus metrics, host:port; None: nowhere."""

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.home / 'baseload.db'}"

    @property
    def storage(self) -> str:
        return self.storage_url or f"file://{self.home / 'storage'}"

    @property
    def platform_key_path(self) -> Path:
        return self.ssh_key or self.home / "keys" / "platform_ed25519"

    @property
    def master_key_path(self) -> Path:
        return self.home / "keys" / "master.key"

    @property
    def administrator_key_path(self) -> Path:
        return self.home / "admin.key"


def environment_value(name: str) -> str | None:
    """What an administrator has put into this process's environment under a name of their own."""
    return os.environ.get(name)


@lru_cache(maxsize=1)
def settings() -> Settings:
    """The settings of this process, read once."""
    return Settings()
