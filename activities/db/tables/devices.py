"""Tables of devices, of their configurations with revisions, and of deployments."""

from datetime import datetime
from typing import Any

from sqlalchemy import Index, Text
from sqlmodel import Field, SQLModel

from activities.db.instants import Instant
from activities.db.tables.columns import LifecycleRow, RemovableRow, index_where, json_column


class DeviceConfiguration(SQLModel, table=True):
    """What devices of a region run, by a name; a plain row, since nothing is asked of the world."""

    __tablename__ = "device_configurations"
    id: str = Field(primary_key=True)
    account_id: str = Field(foreign_key="accounts.id", index=True)
    region_id: str = Field(foreign_key="regions.id", index=True)
    project_id: str = Field(foreign_key="projects.id", index=True)
    """The project whose secrets, keys, model and checkpoints it names."""
    name: str
    latest_revision: int = 0
    created_at: datetime = Field(sa_type=Instant)
    updated_at: datetime = Field(sa_type=Instant)
    removed_at: datetime | None = Field(default=None, sa_type=Instant)
    __table_args__ = (
        index_where(
            "removed_at IS NULL",
            "device_configurations_name_of_region",
            "region_id",
            "name",
            unique=True,
        ),
    )


class DeviceRevision(SQLModel, table=True):
    """A revision of a configuration, which never changes."""

    __tablename__ = "device_revisions"
    configuration_id: str = Field(primary_key=True, foreign_key="device_configurations.id")
    revision: int = Field(primary_key=True)
    document: dict[str, Any] = json_column()
    """All that was sent but for the values of variables."""
    sealed_variables: bytes | None = None
    """The variables with their values, sealed for this revision; None: there are none, or the row
    of `variables_revision` has them."""
    variables_revision: int | None = None
    """The earlier revision that has the same variables, and their values; None: its own row."""
    created_at: datetime = Field(sa_type=Instant)
    created_by: str = ""


class DeviceRevisionUse(SQLModel, table=True):
    """A revision names a model, a checkpoint or a datastore."""

    __tablename__ = "device_revision_uses"
    configuration_id: str = Field(primary_key=True, foreign_key="device_configurations.id")
    revision: int = Field(primary_key=True)
    resource_id: str = Field(primary_key=True, index=True)


class Device(RemovableRow, table=True):
    __tablename__ = "devices"
    region_id: str = Field(foreign_key="regions.id", index=True)
    minion_id: str
    """The SSH host key fingerprint."""
    upnp: bool = True
    host: str | None = None
    port: int = 22
    user: str = "root"
    model: str | None = None
    """The model of Jetson that its inspection found."""
    hardware: dict[str, Any] | None = json_column(nullable=True)
    requirements: list[dict[str, Any]] = json_column()
    preparation: dict[str, Any] | None = json_column(nullable=True)
    wanted_status: str | None = None
    """The status that a person wants, `active` or `maintenance`; None: nobody has asked."""
    wanted_revision: int = 0
    """How often a wanted status was requested."""
    seen_revision: int = 0
    """The revision that the lifecycle has followed."""
    configuration_id: str | None = Field(
        default=None, foreign_key="device_configurations.id", index=True
    )
    """The configuration that it is set to; what it runs is said by its last assignment."""
    assignment_number: int = 0
    """Of the newest assignment; 0: nothing was ever asked of the device."""
    assignment_configuration_id: str | None = None
    """None: its inference is to be stopped."""
    assignment_revision: int | None = None
    assignment_deployment_id: str | None = None
    assignment_by: str = ""
    assignment_at: datetime | None = Field(default=None, sa_type=Instant)
    followed_number: int = 0
    """Of the last assignment that came to an end on the device."""
    run_number: int = 0
    """Of the assignment whose revision the device has; 0: it has none."""
    running_configuration_id: str | None = None
    running_revision: int | None = None
    """What the device runs, also while its command has failed; None: nothing."""
    inference_status: str = "stopped"
    inference_reason: str | None = Field(default=None, sa_type=Text)
    exit_code: int | None = None
    output_backlog: dict[str, Any] | None = json_column(nullable=True)
    """An `OutputBacklog`; None: the device has not said it yet."""
    deployed_at: datetime | None = Field(default=None, sa_type=Instant)
    deployed_by: str | None = None
    removed_at: datetime | None = Field(default=None, sa_type=Instant)
    """When it was archived; its fee counts from `created_at` until then."""
    __table_args__ = (
        index_where(
            "status != 'archived'", "devices_minion_id", "account_id", "minion_id", unique=True
        ),
        index_where(
            "status != 'archived'", "devices_name_of_region", "region_id", "name", unique=True
        ),
        Index("devices_by_account", "account_id", "id"),
        Index("devices_by_status", "status", "region_id"),
        index_where("assignment_number > followed_number", "devices_with_open_assignments", "id"),
    )


class DeviceDeployment(LifecycleRow, table=True):
    __tablename__ = "device_deployments"
    region_id: str = Field(foreign_key="regions.id", index=True)
    configuration_id: str = Field(foreign_key="device_configurations.id", index=True)
    revision: int
    policy: dict[str, Any] = json_column()
    """A `RolloutPolicy`."""
    counts: dict[str, Any] = json_column()
    """A `RolloutCounts`, as of the last recorded step."""
    deadline: datetime | None = Field(default=None, sa_type=Instant)
    accepted_lost: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    """How many of its devices were lost when a person resumed it, which count no more."""
    requested_by: str = ""
    __table_args__ = (Index("device_deployments_by_account", "account_id", "id"),)


class DeploymentTarget(SQLModel, table=True):
    """One device of a deployment."""

    __tablename__ = "deployment_targets"
    deployment_id: str = Field(primary_key=True, foreign_key="device_deployments.id")
    device_id: str = Field(primary_key=True, foreign_key="devices.id", index=True)
    state: str = "waiting"
    """A `TargetState`."""
    assignment_number: int | None = None
    """The number of the assignment that it asked for; None: it has not asked."""
    earlier_configuration_id: str | None = None
    earlier_revision: int | None = None
    """What the device was to run before; to that it is rolled back. None: nothing."""
    reason: str | None = Field(default=None, sa_type=Text)
    away_since: datetime | None = Field(default=None, sa_type=Instant)
    """When it was first found away since it was asked; also why it has failed, if that is set."""
    updated_at: datetime = Field(sa_type=Instant)
    __table_args__ = (Index("deployment_targets_by_state", "deployment_id", "state", "device_id"),)
