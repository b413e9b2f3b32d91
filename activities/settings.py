"""All settings of all processes, from environment variables with the prefix `BASELOAD_`.

This module alone reads the environment.
"""

import os
from functools import lru_cache
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class StartRefusedError(RuntimeError):
    """The error of a process that must not start as it is set up; the message says what to do."""


def cidrs_of(text: str) -> list[str]:
    """The CIDRs of a setting that separates them by commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _networks(text: str) -> str:
    for cidr in cidrs_of(text):
        ip_network(cidr)
    return text


Networks = Annotated[str, AfterValidator(_networks)]


class Settings(BaseSettings):
    """The settings of one process; paths that are not set have a default under `home`."""

    model_config = SettingsConfigDict(env_prefix="BASELOAD_", frozen=True, extra="ignore")

    home: Path = Field(default_factory=lambda: Path.home() / ".baseload")
    api: str = "127.0.0.1:8700"
    """Where the API listens, host:port."""
    sessions_url: str | None = None
    """The base URL at which workers of sites reach this API process itself, and no other one;
    None: `http://` and `api`, by the loopback if it listens at every address."""
    endpoints: str = ""
    """Where the API listens for the pages of jobs, host:port; empty: the host of `api`, at its
    port + 1; `off`: nowhere."""
    endpoints_url: str | None = None
    """The origin of each job's pages, with `*` in place of the job's id, as in
    `https://*.jobs.example.org`; None: `http://*.localhost` and the port of `endpoints`."""
    session_idle_limit_s: int = Field(default=3600, ge=1)
    """The longest time without a byte after which a session is closed."""
    guide: Path | None = None
    """The folder of the built guide that the API serves; None: the checkout's own."""
    database_url: str | None = None
    """SQLAlchemy URL; None: SQLite at `home/baseload.db`."""
    storage_url: str | None = None
    """fsspec URL of the object store for uploads, logs, outputs and sealed run specs; None:
    `home/storage`."""
    ssh_key: Path | None = None
    """The private half of the platform key; None: `home/keys/platform_ed25519`."""
    secrets_key: str | None = None
    """The master key as 64 hex digits, and earlier ones after it, separated by blanks; None: the
    lines of `home/keys/master.key`, which the very first start makes."""

    temporal_address: str = "127.0.0.1:7233"
    temporal_namespace: str = "default"
    temporal_api_key: str | None = None
    temporal_tls_cert: Path | None = None
    temporal_tls_key: Path | None = None

    payload_codec: Literal["off", "decode", "aes-gcm"] = "off"
    """Whether the payloads in Temporal are encrypted (`aes-gcm`). `decode` reads encrypted payloads
    and writes plain ones: the step between, when it is switched on or off while jobs run."""

    sites: str = "*"
    """Sites that this worker process serves, separated by commas: `*` for all shared regions, and
    the ids of regions that a worker process in their own network serves."""

    node_networks: Networks = ""
    """Networks of nodes that are opened although they would be refused, as CIDRs separated by
    commas: loopback, link-local and multicast addresses, the addresses of this host, and
    `platform_networks`."""
    platform_networks: Networks = ""
    """The platform's own networks, in which no node is: CIDRs separated by commas."""

    datastore_networks: Networks = ""
    """Networks of datastores that nodes reach although they would refuse them, as CIDRs separated
    by commas: loopback, link-local and metadata addresses, the addresses of this host and of
    Temporal, and `platform_networks`."""

    source_networks: Networks = ""
    """Networks from which datasets, models and checkpoints are fetched, and to which outputs are
    sent, although they are not public, as CIDRs separated by commas; public addresses are always
    permitted."""
    s3_endpoint: str | None = None
    """The base URL of the S3 API for the buckets of sources, such as a store of one's own; None:
    those of Amazon and Wasabi."""
    gcs_endpoint: str | None = None
    """The base URL of a store that stands for Google's; keys get their tokens below it too, at
    `/token`. None: Google's own."""
    azure_endpoint: str | None = None
    """The base URL of a store that stands for Azure's, below which each account has its name; None:
    `https://ACCOUNT.blob.core.windows.net`."""
    kaggle_endpoint: str = "https://www.kaggle.com"
    """The base URL of Kaggle's API."""
    huggingface_endpoint: str = "https://huggingface.co"
    """The base URL of the hub from which models and datasets are fetched."""
    artifact_max_bytes: int = Field(default=1024**4, ge=1)
    """The largest size of one dataset, model, checkpoint or volume, as a tar."""

    gcp_endpoint: str | None = None
    """The base URL of all HTTP APIs of Google, each under its own path; None: Google's own URLs."""
    gcp_ssh_source_ranges: str = "0.0.0.0/0"
    """Addresses from which machines at Google accept SSH: CIDRs, separated by commas."""
    gcp_image: str = (
        "projects/deeplearning-platform-release/global/images/family/"
        "common-cu129-ubuntu-2404-nvidia-580"
    )
    """The boot image of machines with GPUs at Google: CUDA 12, which supports P100 and V100."""
    gcp_plain_image: str = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
    """The boot image of machines without GPUs at Google, such as storage nodes."""

    runpod_endpoint: str = "https://api.runpod.io"
    """The base URL of RunPod's REST API."""
    runpod_image: str = "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404"
    """The image of RunPod's machines whose job names none; an image has sshd and Python."""
    vastai_endpoint: str = "https://console.vast.ai"
    """The base URL of Vast.ai's REST API."""
    vastai_image: str = "vastai/base-image:@vastai-automatic-tag"
    """The image of Vast.ai's machines whose job names none; an image has Python."""

    rental_price_valid_s: int = Field(default=600, ge=1)
    """For how long the price that a marketplace has stated counts as its price; an older one is
    shown as an estimate. Offers are read every five minutes."""
    rental_offer_valid_s: int = Field(default=60, ge=0)
    """How old a rental offer may be when a machine is rented by it; an older one is read again."""

    trusted_local: bool = False
    """Whether administrators may run jobs on this host, as machines of the kind `local`."""
    local_folder: Path | None = None
    """Where machines of the kind `local` have their folders; None: `/var/lib/baseload-local` for
    root, else `home/local`."""

    job_most_tasks: int = Field(default=32_768, ge=64)
    """The most processes and threads that a run may have at once."""
    job_network_wall: bool = True
    """Whether nodes close their own services and the clouds' metadata addresses to jobs."""
    job_closed_networks: tuple[str, ...] = ()
    """Further networks that are closed to jobs, as a JSON list, such as `["10.0.0.0/8"]`."""

    region_cache_port: int = 8710
    """The port at which a cloud region's storage node serves the region cache to the machines."""
    image_registries: tuple[str, ...] = (
        *("docker.io", "quay.io", "ghcr.io", "gcr.io", "nvcr.io", "registry.k8s.io"),
        *("mcr.microsoft.com", "public.ecr.aws"),
    )
    """The registries whose public images a region's cache keeps; `http://HOST:PORT` is one of a
    site that speaks plain HTTP. Empty: none."""
    region_cache_max_bytes: int | None = None
    """The largest size of the region cache; None, and at most: four fifths of the node's disk."""
    node_contents_max_bytes: int | None = Field(default=None, ge=1)
    """What the datasets, models and checkpoints on one node may take together; None, and at most:
    four fifths of the node's disk. The least used go first, and none that an open run needs."""
    package_index_url: str | None = None
    """The index of Python packages that the region cache reads, such as `https://pypi.org/simple`;
    None: the index in the storage node's own pip configuration."""

    ephemeral_lifetime_s: int = 7 * 86_400
    """The longest lifetime of a machine that is created for one job. Then the machine is
    terminated, by its cloud even if the control plane is down, and the job is rescheduled on
    another machine. Google allows at most 120 days."""
    cpu_core_hour_microcredits: int = 0
    """The usage fee for one CPU core and hour on owned machines; 0: CPUs are free."""
    upload_max_bytes: int = 2 * 1024**3
    upload_max_unpacked_bytes: int = 20 * 1024**3
    account_stored_max_bytes: int = Field(default=1024**4, ge=0)
    """What uploads, outputs, logs, state snapshots and artifacts (datasets, models, checkpoints and
    volumes) of one account may have in the object store together."""
    run_log_max_bytes: int = Field(default=1024**3, ge=1)
    """What is stored of the log of one run; the last line of a cut log says that it is cut."""
    account_most_open_jobs: int = Field(default=10_000, ge=1)
    """How many jobs of one account may be open, which is: neither ended nor removed."""
    account_most_api_keys: int = Field(default=1000, ge=1)
    """How many API keys of one account may be valid, which is: neither revoked nor expired."""
    account_most_join_tokens: int = Field(default=1000, ge=1)
    """How many join tokens of one account may wait for a machine, or for their removal."""
    account_most_projects: int = Field(default=1000, ge=1)
    account_most_users: int = Field(default=1000, ge=1)
    account_most_invitations: int = Field(default=1000, ge=1)
    """How many invitations of one account may wait for their acceptance."""
    account_most_secrets: int = Field(default=1000, ge=1)
    account_most_uploads: int = Field(default=100_000, ge=1)
    """How many uploads of one account may be stored, also of equal bytes."""
    account_most_artifacts: int = Field(default=100_000, ge=1)
    """How many datasets of one account may be there, and as many models, checkpoints, volumes."""
    account_most_reservations: int = Field(default=1000, ge=1)
    account_most_devices: int = Field(default=10_000, ge=1)
    account_most_device_configurations: int = Field(default=1000, ge=1)
    account_most_open_deployments: int = Field(default=1000, ge=1)
    """How many deployments of one account may be under way."""
    project_most_open_federated_jobs: int = Field(default=100, ge=1)
    """How many federated jobs of all creators may be open in one project."""
    account_most_boot_drive_requests: int = Field(default=20, ge=1)
    """How many boot-drive requests of one account may be open: not refused, withdrawn, received."""
    account_transfers_at_once: int = Field(default=3, ge=1)
    """How many transfers of datasets, models, checkpoints and volumes, and deliveries of outputs,
    of one account are under way at once, of the eight that a worker process has room for; others
    wait."""
    account_uploads_at_once: int = Field(default=8, ge=1)
    """How many uploads of one account an API process receives and checks at once."""
    administrators_have_limits: bool = True
    """Whether the limits above hold for the accounts of administrators too."""
    request_max_bytes: int = 1024**2
    announcements_per_minute: int = 60
    requests_per_minute: int = Field(default=12_000, ge=1)
    """How many requests an API process answers in a minute with one API key; they may come at
    once. A stream counts as one."""
    account_requests_per_minute: int = Field(default=24_000, ge=1)
    """How many with all API keys of one account together."""
    job_unreachable_limit_s: int = 3600
    job_end_grace_s: int = 10
    state_interval_s: int = Field(default=300, ge=10)
    """Seconds between two state snapshots of a job on a machine that can be lost."""
    state_max_bytes: int = 10 * 1024**3
    """The size above which a resume state gets no state snapshot."""
    billing_period_s: int = 3600
    """The length of a billing period; an hour, except in tests."""
    reconciliation_interval_s: int = Field(default=300, ge=5)
    """Seconds between two comparisons of rows with workflows, and of leases with machines."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_json: bool | None = None
    """Whether log lines are JSON; None: JSON unless they go to a terminal."""
    metrics: str | None = None
    """Where a worker process serves its Prometheus metrics, host:port; None: nowhere."""

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.home / 'baseload.db'}"

    @property
    def storage(self) -> str:
        return self.storage_url or f"file://{self.home / 'storage'}"

    @property
    def own_sessions_url(self) -> str:
        """The base URL at which workers of sites reach this API process."""
        host, _, port = self.api.rpartition(":")
        host = "127.0.0.1" if host in ("", "0.0.0.0", "[::]") else host  # noqa: S104 - no bind
        return (self.sessions_url or f"http://{host}:{port}").rstrip("/")

    @property
    def endpoints_address(self) -> tuple[str, int] | None:
        """Where the pages of jobs are served; None: nowhere."""
        if self.endpoints == "off":
            return None
        host, _, port = (self.endpoints or self.api).rpartition(":")
        return host, int(port) + (0 if self.endpoints else 1)

    def endpoint_origin(self, job_id: str) -> str | None:
        """The origin of a job's pages, which no other job has; None: they are not served."""
        address = self.endpoints_address
        if address is None:
            return None
        pattern = self.endpoints_url or f"http://*.localhost:{address[1]}"
        return pattern.replace("*", job_id).rstrip("/")

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
    """The value of a variable of the process's environment, whose name an administrator chose."""
    return os.environ.get(name)


@lru_cache(maxsize=1)
def settings() -> Settings:
    """The settings of this process, read once."""
    return Settings()
