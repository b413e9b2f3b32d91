"""The schemas of device configurations and their revisions."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field, JsonValue

from api.schemas.base import Name, Page, RequestBody, ResourceId, ResponseBody
from workflows.contracts.device_configurations import DeviceDocument
from workflows.contracts.devices import HealthCheck, OutputBuffer, OutputPolicy
from workflows.contracts.job_submission import DataSource, ModelReference


class HealthCheckCreation(HealthCheck):
    model_config = ConfigDict(extra="forbid")


class OutputBufferCreation(OutputBuffer):
    model_config = ConfigDict(extra="forbid")


class DeviceConfigurationCreation(DeviceDocument):
    output_buffer: OutputBufferCreation = OutputBufferCreation()
    """What the device keeps of its output while the datastore does not take it: that follows later,
    and what is dropped is counted."""
    health: HealthCheckCreation = HealthCheckCreation()
    """What must be so before a revision counts as running; else the one before runs again."""
    name: Name
    """The name, which no other configuration of the region has."""
    region_id: ResourceId
    """The region whose devices may have it."""
    project_id: ResourceId | None = None
    """The project whose model, checkpoints, secrets and keys it names; by default the account's
    own."""


class DeviceEnvironmentChange(RequestBody):
    image: str | None = None
    variables: dict[str, str | None] | None = None
    """The variables that change; null removes one, and the others stay."""
    secrets: dict[str, str | None] | None = None
    """The secrets that change; null removes one, and the others stay."""
    credentials: tuple[str, ...] | None = None
    image_credentials: str | None = None


class HealthCheckChange(RequestBody):
    up_s: Annotated[int | None, Field(ge=0, le=3600)] = None
    http_port: Annotated[int | None, Field(ge=1, le=65_535)] = None
    http_path: Annotated[str | None, Field(max_length=200)] = None
    log_line: Annotated[str | None, Field(max_length=200)] = None
    limit_s: Annotated[int | None, Field(ge=1, le=3600)] = None


class OutputBufferChange(RequestBody):
    policy: OutputPolicy | None = None
    limit_bytes: Annotated[int | None, Field(ge=10**6, le=2000 * 10**9)] = None


class DeviceConfigurationChange(RequestBody):
    """The fields of the next revision that differ from the latest one; null: as by default."""

    command: str | None = None
    model: ModelReference | None = None
    checkpoints: tuple[str, ...] | None = None
    output: DataSource | None = None
    output_buffer: OutputBufferChange | None = None
    environment: DeviceEnvironmentChange | None = None
    health: HealthCheckChange | None = None
    disk_size_gb: Annotated[int | None, Field(ge=1, le=2000)] = None


class DeviceEnvironmentShown(ResponseBody):
    image: str | None
    variables: list[str]
    """The names; no value is ever shown."""
    secrets: dict[str, str]
    credentials: list[str]
    image_credentials: str | None


class DeviceOutput(ResponseBody):
    datastore_id: str
    path: str


class DeviceOutputBuffer(ResponseBody):
    policy: OutputPolicy
    limit_bytes: int | None
    """Null: half of `disk_size_gb`."""


class DeviceHealthCheck(ResponseBody):
    up_s: int
    http_port: int | None
    http_path: str | None
    log_line: str | None
    limit_s: int


class DeviceRevision(ResponseBody):
    """A revision of a configuration, which never changes."""

    configuration_id: str
    revision: int
    created_at: datetime
    created_by: str
    created_by_name: str
    """The person by e-mail address, for who may list users; one of another account: `a member`."""
    command: str
    model_id: str | None
    checkpoints: list[str]
    output: DeviceOutput | None
    output_buffer: DeviceOutputBuffer
    environment: DeviceEnvironmentShown
    health: DeviceHealthCheck
    disk_size_gb: int


class DeviceRevisionSummary(ResponseBody):
    revision: int
    created_at: datetime
    created_by: str
    created_by_name: str
    """The person by e-mail address, for who may list users; one of another account: `a member`."""
    running_count: int
    """How many devices have it."""


class DeviceConfiguration(ResponseBody):
    id: str
    account_id: str
    region_id: str
    project_id: str
    name: str
    latest_revision: int
    device_count: int
    """How many devices are set to it."""
    deployed_count: int
    """How many of these have its latest revision."""
    created_at: datetime
    updated_at: datetime


class DescribedDeviceConfiguration(DeviceConfiguration):
    latest: DeviceRevision
    revisions: list[DeviceRevisionSummary]
    """The newest first, at most 100."""


class DeviceConfigurationPage(Page[DeviceConfiguration]):
    pass


class DifferenceKind(StrEnum):
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class DeviceRevisionDifference(ResponseBody):
    field: str
    """The field by its path, such as `environment.image`."""
    kind: DifferenceKind
    earlier: JsonValue = None
    later: JsonValue = None
    """The values; always null for variables, whose values are never shown."""


class DeviceRevisionDiff(ResponseBody):
    configuration_id: str
    earlier: int
    later: int
    differences: list[DeviceRevisionDifference]
