# Written by client/generate.py: change api/openapi.json instead.

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    StringConstraints,
)


class Acceptance(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    token: Annotated[str, Field(max_length=200, min_length=1, title="Token")]


class AcceptedInvitation(BaseModel):
    """
    What an invitation has made of the caller's user.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    project_id: Annotated[str | None, Field(title="Project Id")]
    permissions: Annotated[dict[str, str] | None, Field(title="Permissions")]
    role: Annotated[str | None, Field(title="Role")]
    key_id: Annotated[str | None, Field(title="Key Id")]
    secret: Annotated[str | None, Field(title="Secret")]


class Name(RootModel[str]):
    root: Annotated[str, Field(max_length=100, min_length=1, title="Name")]


class BillingAccountId(RootModel[str]):
    root: Annotated[str, Field(max_length=100, title="Billing Account Id")]


class AccountChange(BaseModel):
    """
    A change of an account; fields that are left out keep their values.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    name: Annotated[Name | None, Field(title="Name")] = None
    plan: Annotated[Literal["individual", "team", "enterprise"] | None, Field(title="Plan")] = None
    billing_account_id: Annotated[BillingAccountId | None, Field(title="Billing Account Id")] = None


class OwnerEmail(RootModel[str]):
    root: Annotated[str, Field(max_length=254, title="Owner Email")]


class AccountCreation(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    name: Annotated[str, Field(max_length=100, min_length=1, title="Name")]
    plan: Annotated[Literal["individual", "team", "enterprise"], Field(title="Plan")] = "individual"
    billing_account_id: Annotated[BillingAccountId | None, Field(title="Billing Account Id")] = None
    owner_email: Annotated[OwnerEmail | None, Field(title="Owner Email")] = None


class AccountMembership(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    account_id: Annotated[str, Field(title="Account Id")]
    name: Annotated[str, Field(title="Name")]
    role: Annotated[str, Field(title="Role")]
    is_own: Annotated[bool, Field(title="Is Own")]
    is_current: Annotated[bool, Field(title="Is Current")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]


class AnnouncementCreation(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    token: Annotated[str, Field(max_length=120, title="Token")]
    minion_id: Annotated[str, Field(max_length=50, title="Minion Id")]
    host_public_key: Annotated[str, Field(max_length=4096, title="Host Public Key")]
    address: Annotated[str, Field(max_length=254, title="Address")]
    port: Annotated[int, Field(ge=1, le=65535, title="Port")]
    user: Annotated[str, Field(max_length=33, title="User")] = "root"


class AnnouncementReceipt(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    minion_id: Annotated[str, Field(title="Minion Id")]
    address: Annotated[str, Field(title="Address")]
    port: Annotated[int, Field(title="Port")]
    user: Annotated[str, Field(title="User")]
    first_at: Annotated[AwareDatetime, Field(title="First At")]
    last_at: Annotated[AwareDatetime, Field(title="Last At")]
    added: Annotated[bool, Field(title="Added")]
    upnp: Annotated[bool, Field(title="Upnp")]


class ApiKey(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    user_id: Annotated[str, Field(title="User Id")]
    parent_key_id: Annotated[str | None, Field(title="Parent Key Id")]
    name: Annotated[str, Field(title="Name")]
    scopes: Annotated[list[str], Field(title="Scopes")]
    requests_per_minute: Annotated[int | None, Field(title="Requests Per Minute")]
    expires_at: Annotated[AwareDatetime | None, Field(title="Expires At")]
    last_used_at: Annotated[AwareDatetime | None, Field(title="Last Used At")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]


class Scope(RootModel[str]):
    root: Annotated[str, Field(max_length=100)]


class Scopes(RootModel[list[Scope]]):
    root: Annotated[list[Scope], Field(max_length=40, min_length=1, title="Scopes")]


class RequestsPerMinute(RootModel[int]):
    root: Annotated[int, Field(ge=1, le=1000000, title="Requests Per Minute")]


class UserId(RootModel[str]):
    root: Annotated[str, Field(max_length=100, title="User Id")]


class ApiKeyCreation(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    name: Annotated[str, Field(max_length=100, min_length=1, title="Name")]
    scopes: Annotated[Scopes | None, Field(title="Scopes")] = None
    expires_at: Annotated[AwareDatetime | None, Field(title="Expires At")] = None
    requests_per_minute: Annotated[RequestsPerMinute | None, Field(title="Requests Per Minute")] = (
        None
    )
    user_id: Annotated[UserId | None, Field(title="User Id")] = None


class ApiKeyPage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[ApiKey], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class ProjectId(RootModel[str]):
    root: Annotated[str, Field(max_length=100, title="Project Id")]


class ArtifactPart(BaseModel):
    """
    A part of an upload that is stored.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    index: Annotated[int, Field(title="Index")]
    sha256: Annotated[str, Field(title="Sha256")]
    size_bytes: Annotated[int, Field(title="Size Bytes")]


class ArtifactParts(BaseModel):
    """
    The parts of an upload that are stored, in order.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[ArtifactPart], Field(title="Items")]
    part_bytes: Annotated[int, Field(title="Part Bytes")]


class ArtifactSource(BaseModel):
    """
    The content of another artifact, which is copied.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    type: Annotated[Literal["artifact"], Field(title="Type")]
    artifact_id: Annotated[
        str,
        Field(
            max_length=100,
            pattern="^(dat|mod|chk|vol)-[0-9a-z]{26}$",
            title="Artifact Id",
        ),
    ]


class AuditEntry(BaseModel):
    """
    An audit entry: which API key did what, to which resource, and when.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    key_id: Annotated[str | None, Field(title="Key Id")]
    action: Annotated[str, Field(title="Action")]
    resource_id: Annotated[str | None, Field(title="Resource Id")]
    at: Annotated[AwareDatetime, Field(title="At")]
    actor_account_id: Annotated[str | None, Field(title="Actor Account Id")]
    acting_as: Annotated[str | None, Field(title="Acting As")]
    address: Annotated[str | None, Field(title="Address")]
    outcome: Annotated[str | None, Field(title="Outcome")]
    count: Annotated[int | None, Field(title="Count")]
    number: Annotated[int | None, Field(title="Number")]
    previous_sha256: Annotated[str | None, Field(title="Previous Sha256")]
    sha256: Annotated[str | None, Field(title="Sha256")]


class AuditPage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[AuditEntry], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class AzureSource(BaseModel):
    """
    The blobs of a container at Azure whose names begin alike.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    with_key: Annotated[bool | None, Field(title="With Key")] = None
    type: Annotated[Literal["azure"], Field(title="Type")]
    account: Annotated[
        str, Field(max_length=24, min_length=3, pattern="^[a-z0-9]+$", title="Account")
    ]
    container: Annotated[
        str,
        Field(
            max_length=63,
            min_length=1,
            pattern="^([a-z0-9][a-z0-9-]*|\\$root)$",
            title="Container",
        ),
    ]
    prefix: Annotated[str, Field(max_length=900, title="Prefix")] = ""


class ShipToItem(RootModel[str]):
    root: Annotated[str, Field(max_length=100, min_length=1)]


class BootDriveRequestCreation(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    region_id: Annotated[str, Field(max_length=100, title="Region Id")]
    count: Annotated[int, Field(ge=1, le=20, title="Count")]
    ship_to: Annotated[list[ShipToItem], Field(max_length=8, min_length=2, title="Ship To")]


class BootDriveRequestRefusal(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    reason: Annotated[str, Field(max_length=500, min_length=1, title="Reason")]


class Carrier(RootModel[str]):
    root: Annotated[str, Field(max_length=100, min_length=1, title="Carrier")]


class Tracking(RootModel[str]):
    root: Annotated[str, Field(max_length=100, min_length=1, title="Tracking")]


class BootDriveRequestShipment(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    carrier: Annotated[Carrier | None, Field(title="Carrier")] = None
    tracking: Annotated[Tracking | None, Field(title="Tracking")] = None


class BrokenChain(BaseModel):
    """
    The first entry of an account's chain that is not as it was written.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    account_id: Annotated[str, Field(title="Account Id")]
    number: Annotated[int, Field(title="Number")]
    entry_id: Annotated[str | None, Field(title="Entry Id")]
    reason: Annotated[str, Field(title="Reason")]


class ClockReading(BaseModel):
    """
    The beginning and the end of a run by one clock.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    begins_at: Annotated[AwareDatetime | None, Field(title="Begins At")]
    ends_at: Annotated[AwareDatetime | None, Field(title="Ends At")]
    seconds: Annotated[int | None, Field(title="Seconds")]


class GpuName(RootModel[str]):
    root: Annotated[str, Field(max_length=100, title="Gpu Name")]


class ColabAnnouncementCreation(BaseModel):
    """
    What a notebook says of itself.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    token: Annotated[str, Field(max_length=200, title="Token")]
    host: Annotated[str, Field(max_length=254, title="Host")]
    port: Annotated[int, Field(ge=1, le=65535, title="Port")]
    user: Annotated[str, Field(max_length=33, title="User")] = "root"
    host_public_key: Annotated[str, Field(max_length=4096, title="Host Public Key")]
    gpu_name: Annotated[GpuName | None, Field(title="Gpu Name")] = None
    gpu_count: Annotated[int, Field(ge=0, le=16, title="Gpu Count")] = 0
    cpu_count: Annotated[int, Field(ge=1, le=1024, title="Cpu Count")]
    memory_bytes: Annotated[int, Field(ge=1, le=17592186044416, title="Memory Bytes")]


class ColabAnnouncementReceipt(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    provider_id: Annotated[str, Field(title="Provider Id")]
    host: Annotated[str, Field(title="Host")]
    port: Annotated[int, Field(title="Port")]
    host_key_fingerprint: Annotated[str, Field(title="Host Key Fingerprint")]
    gpu_type: Annotated[str | None, Field(title="Gpu Type")]
    gpu_count: Annotated[int, Field(title="Gpu Count")]
    expires_at: Annotated[AwareDatetime, Field(title="Expires At")]


class ColabBootstrap(BaseModel):
    """
    The cell by which a notebook announces itself once.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    cell: Annotated[str, Field(title="Cell")]
    public_key: Annotated[str, Field(title="Public Key")]
    token: Annotated[str, Field(title="Token")]
    expires_at: Annotated[AwareDatetime, Field(title="Expires At")]


class Cost(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    key: Annotated[str | None, Field(title="Key")]
    name: Annotated[str | None, Field(title="Name")]
    charged_microcredits: Annotated[int, Field(title="Charged Microcredits")]
    machine_microcredits: Annotated[int, Field(title="Machine Microcredits")]
    machine_cost_is_estimate: Annotated[bool, Field(title="Machine Cost Is Estimate")]
    total_microcredits: Annotated[int, Field(title="Total Microcredits")]
    earned_microcredits: Annotated[int, Field(title="Earned Microcredits")]


class Costs(BaseModel):
    """
    What an account has cost in whole UTC days.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    account_id: Annotated[str, Field(title="Account Id")]
    begins_at: Annotated[AwareDatetime, Field(title="Begins At")]
    ends_at: Annotated[AwareDatetime, Field(title="Ends At")]
    by: Annotated[
        Literal["day", "provider", "project", "region"],
        Field(description="By what costs are added up.", title="CostKey"),
    ]
    items: Annotated[list[Cost], Field(title="Items")]
    is_whole: Annotated[bool, Field(title="Is Whole")]
    earned_microcredits: Annotated[int, Field(title="Earned Microcredits")]
    charged_microcredits: Annotated[int, Field(title="Charged Microcredits")]
    machine_microcredits: Annotated[int, Field(title="Machine Microcredits")]
    total_microcredits: Annotated[int, Field(title="Total Microcredits")]


class CreditGrant(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    amount_microcredits: Annotated[
        int, Field(gt=0, le=1000000000000000, title="Amount Microcredits")
    ]


class DataSource(BaseModel):
    """
    A folder of a datastore, or what else has the type of the part.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    type: Annotated[
        str,
        Field(
            description="`regional`: a folder of a datastore, in whose region the job then runs.",
            examples=["regional"],
            title="Type",
        ),
    ]
    upload_id: Annotated[
        str | None,
        Field(
            description="The upload of an archive, for input alone; its files are what BASELOAD_INPUT has.",
            examples=["upl-01j"],
            title="Upload Id",
        ),
    ] = None
    datastore_id: Annotated[
        str | None,
        Field(
            description="The datastore, for `regional` alone (`baseload datastore ls`).",
            examples=["dst-01j"],
            title="Datastore Id",
        ),
    ] = None
    path: Annotated[
        str | None,
        Field(
            description="The folder of the datastore, relative to its root and never above it; `/` is all of it, and the default. Links on the way are not followed. Output of several workers goes into `worker-0`, `worker-1` and so on below it.",
            examples=["sets/digits"],
            title="Path",
        ),
    ] = None


class User(RootModel[str]):
    root: Annotated[str, Field(max_length=200, title="User")]


class Password(RootModel[str]):
    root: Annotated[str, Field(max_length=500, min_length=1, title="Password")]


class DeploymentCounts(BaseModel):
    """
    How many of its devices are how far, as of the last event.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    waiting: Annotated[int, Field(title="Waiting")]
    asked: Annotated[int, Field(title="Asked")]
    away: Annotated[int, Field(title="Away")]
    running: Annotated[int, Field(title="Running")]
    failed: Annotated[int, Field(title="Failed")]
    superseded: Annotated[int, Field(title="Superseded")]
    left: Annotated[int, Field(title="Left")]
    withdrawn: Annotated[int, Field(title="Withdrawn")]
    total: Annotated[int, Field(title="Total")]


class ConfigurationId(RootModel[str]):
    root: Annotated[str, Field(max_length=100, title="Configuration Id")]


class DeviceId(RootModel[str]):
    root: Annotated[str, Field(max_length=100)]


class DeviceIds(RootModel[list[DeviceId]]):
    root: Annotated[list[DeviceId], Field(max_length=1000, min_length=1, title="Device Ids")]


class Revision(RootModel[int]):
    root: Annotated[int, Field(ge=1, le=10000, title="Revision")]


class MaxFailures(RootModel[int]):
    root: Annotated[int, Field(ge=1, le=10000, title="Max Failures")]


class DeploymentCreation(BaseModel):
    """
    The devices are those named, or all that are set to the configuration.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    configuration_id: Annotated[ConfigurationId | None, Field(title="Configuration Id")] = None
    device_ids: Annotated[DeviceIds | None, Field(title="Device Ids")] = None
    revision: Annotated[Revision | None, Field(title="Revision")] = None
    max_unavailable: Annotated[int, Field(ge=1, le=10000, title="Max Unavailable")] = 1000
    max_failures: Annotated[MaxFailures | None, Field(title="Max Failures")] = None
    rolls_back: Annotated[bool, Field(title="Rolls Back")] = False
    limit_s: Annotated[int, Field(ge=60, le=2592000, title="Limit S")] = 86400


class DeploymentPolicy(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    max_unavailable: Annotated[int, Field(title="Max Unavailable")]
    max_failures: Annotated[int | None, Field(title="Max Failures")]
    rolls_back: Annotated[bool, Field(title="Rolls Back")]
    limit_s: Annotated[int, Field(title="Limit S")]


class DeviceConfiguration(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    region_id: Annotated[str, Field(title="Region Id")]
    project_id: Annotated[str, Field(title="Project Id")]
    name: Annotated[str, Field(title="Name")]
    latest_revision: Annotated[int, Field(title="Latest Revision")]
    device_count: Annotated[int, Field(title="Device Count")]
    deployed_count: Annotated[int, Field(title="Deployed Count")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]
    updated_at: Annotated[AwareDatetime, Field(title="Updated At")]


class DiskSizeGb(RootModel[int]):
    root: Annotated[int, Field(ge=1, le=2000, title="Disk Size Gb")]


class ProjectId1(RootModel[str]):
    root: Annotated[
        str,
        Field(
            description="The project whose model, checkpoints, secrets and keys it names; by default the account's own.",
            max_length=100,
            title="Project Id",
        ),
    ]


class DeviceConfigurationPage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[DeviceConfiguration], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class Address(RootModel[str]):
    root: Annotated[str, Field(max_length=254, title="Address")]


class DeviceCreation(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    region_id: Annotated[str, Field(max_length=100, title="Region Id")]
    name: Annotated[str, Field(max_length=100, min_length=1, title="Name")]
    minion_id: Annotated[str, Field(max_length=50, title="Minion Id")]
    upnp: Annotated[bool, Field(title="Upnp")] = True
    address: Annotated[Address | None, Field(title="Address")] = None
    port: Annotated[int, Field(ge=1, le=65535, title="Port")] = 22
    user: Annotated[str, Field(max_length=33, title="User")] = "root"


class DeviceEnvironment(BaseModel):
    """
    What the command finds beside its files.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    image: Annotated[
        str | None,
        Field(
            description="The container image in which the command runs; without this field it runs on the device itself.",
            examples=["ghcr.io/shop/detector:3"],
            title="Image",
        ),
    ] = None
    variables: Annotated[
        dict[str, str] | None,
        Field(
            description="Variables of the command's environment. Their values are stored encrypted and never shown. Names do not begin with BASELOAD_.",
            examples=[{"THRESHOLD": "0.6"}],
            title="Variables",
        ),
    ] = None
    secrets: Annotated[
        dict[str, str] | None,
        Field(
            description="Variables whose values are secrets of the configuration's project, each with the name of its secret, or with the reference `store://projects/PROJECT/NAME`.",
            examples=[{"TOKEN": "camera_token"}],
            title="Secrets",
        ),
    ] = None
    credentials: Annotated[
        list[str],
        Field(
            description="Third-party keys of the project that the command gets, each by its type.",
            examples=[["aws"]],
            title="Credentials",
        ),
    ] = []
    image_credentials: Annotated[
        str | None,
        Field(
            description="The third-party key of the project with which the image is pulled, `docker` or `ngc`.",
            examples=["docker"],
            title="Image Credentials",
        ),
    ] = None


class DeviceEnvironmentChange(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    image: Annotated[str | None, Field(title="Image")] = None
    variables: Annotated[dict[str, str | None] | None, Field(title="Variables")] = None
    secrets: Annotated[dict[str, str | None] | None, Field(title="Secrets")] = None
    credentials: Annotated[list[str] | None, Field(title="Credentials")] = None
    image_credentials: Annotated[str | None, Field(title="Image Credentials")] = None


class DeviceEnvironmentShown(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    image: Annotated[str | None, Field(title="Image")]
    variables: Annotated[list[str], Field(title="Variables")]
    secrets: Annotated[dict[str, str], Field(title="Secrets")]
    credentials: Annotated[list[str], Field(title="Credentials")]
    image_credentials: Annotated[str | None, Field(title="Image Credentials")]


class DeviceHealthCheck(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    up_s: Annotated[int, Field(title="Up S")]
    http_port: Annotated[int | None, Field(title="Http Port")]
    http_path: Annotated[str | None, Field(title="Http Path")]
    log_line: Annotated[str | None, Field(title="Log Line")]
    limit_s: Annotated[int, Field(title="Limit S")]


class DeviceJetson(BaseModel):
    """
    What the machine says of itself as a Jetson, as the inspection found it.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    model_text: Annotated[str, Field(title="Model Text")]
    l4t_release: Annotated[str | None, Field(title="L4T Release")]
    jetpack: Annotated[str | None, Field(title="Jetpack")]
    power_mode: Annotated[str | None, Field(title="Power Mode")]
    temperatures_c: Annotated[dict[str, float], Field(title="Temperatures C")]
    gpu_load: Annotated[int | None, Field(title="Gpu Load")]


class DeviceLogPiece(BaseModel):
    """
    A piece of the log of what a device runs: the data of a message of its stream.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    offset: Annotated[int, Field(title="Offset")]
    text: Annotated[str, Field(title="Text")]


class DeviceOutput(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    datastore_id: Annotated[str, Field(title="Datastore Id")]
    path: Annotated[str, Field(title="Path")]


class DeviceOutputBacklog(BaseModel):
    """
    What a device has of its output that its datastore has not, as it said last; to a minute.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    waiting_files: Annotated[int, Field(title="Waiting Files")]
    waiting_bytes: Annotated[int, Field(title="Waiting Bytes")]
    dropped_files: Annotated[int, Field(title="Dropped Files")]
    dropped_bytes: Annotated[int, Field(title="Dropped Bytes")]
    away: Annotated[str | None, Field(title="Away")]


class DeviceRevisionReference(BaseModel):
    """
    A revision of a configuration.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    configuration_id: Annotated[str, Field(title="Configuration Id")]
    configuration_name: Annotated[str, Field(title="Configuration Name")]
    revision: Annotated[int, Field(title="Revision")]


class DeviceRevisionSummary(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    revision: Annotated[int, Field(title="Revision")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]
    created_by: Annotated[str, Field(title="Created By")]
    created_by_name: Annotated[str, Field(title="Created By Name")]
    running_count: Annotated[int, Field(title="Running Count")]


class DeviceSetting(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    configuration_id: Annotated[ConfigurationId | None, Field(title="Configuration Id")]


class EmptySource(BaseModel):
    """
    No content: a volume that jobs write to.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    type: Annotated[Literal["empty"], Field(title="Type")]


class Figure(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    value: Annotated[int | float | None, Field(title="Value")]
    source: Annotated[str, Field(title="Source")]


class GitSource(BaseModel):
    """
    The files of one revision of a git repository, without its history.

    Over SSH (`ssh://git@HOST/PATH`) it is always read with the project's key of the type git.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    with_key: Annotated[bool | None, Field(title="With Key")] = None
    type: Annotated[Literal["git"], Field(title="Type")]
    url: Annotated[str, Field(max_length=2000, pattern="^(https|ssh)://[!-~]+$", title="Url")]
    revision: Annotated[
        str,
        Field(
            max_length=200,
            min_length=1,
            pattern="^[0-9A-Za-z][0-9A-Za-z._/+-]*$",
            title="Revision",
        ),
    ] = "HEAD"


class GoogleStorageSource(BaseModel):
    """
    The objects of a bucket at Google whose names begin alike.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    with_key: Annotated[bool | None, Field(title="With Key")] = None
    type: Annotated[Literal["gcp"], Field(title="Type")]
    bucket: Annotated[
        str,
        Field(
            max_length=222,
            min_length=3,
            pattern="^[a-z0-9][a-z0-9._-]*[a-z0-9]$",
            title="Bucket",
        ),
    ]
    prefix: Annotated[str, Field(max_length=900, title="Prefix")] = ""


class Gpu(BaseModel):
    """
    A GPU in use; what its driver has not reported lately is null.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    index: Annotated[int | None, Field(title="Index")]
    uuid: Annotated[str | None, Field(title="Uuid")]
    name: Annotated[str | None, Field(title="Name")]
    percent: Annotated[int | None, Field(title="Percent")]
    memory_used_bytes: Annotated[int | None, Field(title="Memory Used Bytes")]
    memory_total_bytes: Annotated[int | None, Field(title="Memory Total Bytes")]
    job_id: Annotated[str | None, Field(title="Job Id")]


class Account1(RootModel[str]):
    root: Annotated[str, Field(max_length=100)]


class Project(RootModel[str]):
    root: Annotated[str, Field(max_length=100)]


class FromHour(RootModel[int]):
    root: Annotated[int, Field(ge=0, le=23, title="From Hour")]


class UntilHour(RootModel[int]):
    root: Annotated[int, Field(ge=0, le=23, title="Until Hour")]


class MostGpus(RootModel[int]):
    root: Annotated[int, Field(ge=1, le=100000, title="Most Gpus")]


class PreemptionNoticeS(RootModel[int]):
    root: Annotated[int, Field(ge=60, le=86400, title="Preemption Notice S")]


class GuestPolicy(BaseModel):
    """
    Which guests a public region takes, when, and how many; by default all, at any time.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    accounts: Annotated[
        list[Account1], Field(max_length=100, title="Accounts", validate_default=True)
    ] = []
    projects: Annotated[
        list[Project], Field(max_length=100, title="Projects", validate_default=True)
    ] = []
    from_hour: Annotated[FromHour | None, Field(title="From Hour")] = None
    until_hour: Annotated[UntilHour | None, Field(title="Until Hour")] = None
    most_gpus: Annotated[MostGpus | None, Field(title="Most Gpus")] = None
    preemption_notice_s: Annotated[PreemptionNoticeS | None, Field(title="Preemption Notice S")] = (
        None
    )


class Health(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    status: Annotated[str, Field(title="Status")]


class UpS(RootModel[int]):
    root: Annotated[int, Field(ge=0, le=3600, title="Up S")]


class HttpPort(RootModel[int]):
    root: Annotated[int, Field(ge=1, le=65535, title="Http Port")]


class HttpPath(RootModel[str]):
    root: Annotated[str, Field(max_length=200, title="Http Path")]


class LogLine(RootModel[str]):
    root: Annotated[str, Field(max_length=200, title="Log Line")]


class LimitS(RootModel[int]):
    root: Annotated[int, Field(ge=1, le=3600, title="Limit S")]


class HealthCheckChange(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    up_s: Annotated[UpS | None, Field(title="Up S")] = None
    http_port: Annotated[HttpPort | None, Field(title="Http Port")] = None
    http_path: Annotated[HttpPath | None, Field(title="Http Path")] = None
    log_line: Annotated[LogLine | None, Field(title="Log Line")] = None
    limit_s: Annotated[LimitS | None, Field(title="Limit S")] = None


class HealthCheckCreation(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    up_s: Annotated[int, Field(ge=0, le=3600, title="Up S")] = 10
    http_port: Annotated[HttpPort | None, Field(title="Http Port")] = None
    http_path: Annotated[HttpPath | None, Field(title="Http Path")] = None
    log_line: Annotated[LogLine | None, Field(title="Log Line")] = None
    limit_s: Annotated[int, Field(ge=1, le=3600, title="Limit S")] = 300


class Secret(RootModel[str]):
    root: Annotated[
        str,
        Field(max_length=100, pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$", title="Secret"),
    ]


class HuggingFaceSource(BaseModel):
    """
    The files of one revision of a repository at Hugging Face.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    with_key: Annotated[bool | None, Field(title="With Key")] = None
    type: Annotated[Literal["huggingface"], Field(title="Type")]
    repo: Annotated[
        str,
        Field(
            max_length=200,
            pattern="^[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)?$",
            title="Repo",
        ),
    ]
    kind: Annotated[Literal["model", "dataset"], Field(title="Kind")] = "model"
    revision: Annotated[
        str,
        Field(
            max_length=200,
            min_length=1,
            pattern="^[0-9A-Za-z][0-9A-Za-z._/+-]*$",
            title="Revision",
        ),
    ] = "main"
    secret: Annotated[Secret | None, Field(title="Secret")] = None


class Image(RootModel[str]):
    root: Annotated[str, Field(max_length=500, min_length=1, title="Image")]


class IdleWorkload(BaseModel):
    """
    What the account's nodes with `mining` run while no job is there.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    image: Annotated[Image | None, Field(title="Image")] = None
    command: Annotated[str, Field(max_length=10000, min_length=1, title="Command")]
    environment: Annotated[
        dict[
            Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)],
            str,
        ]
        | None,
        Field(title="Environment"),
    ] = None


class IdleWorkloadShown(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    image: Annotated[str | None, Field(title="Image")]
    command: Annotated[str, Field(title="Command")]
    environment: Annotated[dict[str, str], Field(title="Environment")]


class InputSource(BaseModel):
    """
    The source of a job's input.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    type: Annotated[
        str,
        Field(
            description="`local`: an upload. `regional`: a folder of a datastore, in whose region the job then runs. `dataset`, `model`, `checkpoint`: one of the job's project. `job`: the output of another job of the project, which has ended. `web`, `git`, `aws`, `wasabi`, `gcp`, `azure`, `huggingface`, `kaggle`: transferred once for the job, and for all jobs of its array, with the fields that a dataset from there has; the job waits meanwhile.",
            examples=["web"],
            title="Type",
        ),
    ]
    upload_id: Annotated[
        str | None,
        Field(
            description="The upload of an archive, for input alone; its files are what BASELOAD_INPUT has.",
            examples=["upl-01j"],
            title="Upload Id",
        ),
    ] = None
    datastore_id: Annotated[
        str | None,
        Field(
            description="The datastore, for `regional` alone (`baseload datastore ls`).",
            examples=["dst-01j"],
            title="Datastore Id",
        ),
    ] = None
    path: Annotated[
        str | None,
        Field(
            description="The folder of the datastore, relative to its root and never above it; `/` is all of it, and the default. Links on the way are not followed. Output of several workers goes into `worker-0`, `worker-1` and so on below it.",
            examples=["sets/digits"],
            title="Path",
        ),
    ] = None
    id: Annotated[
        str | None,
        Field(
            description="The dataset, the model or the checkpoint, for these types alone.",
            examples=["dat-01j"],
            title="Id",
        ),
    ] = None
    job_id: Annotated[
        str | None,
        Field(
            description="The job whose output it is, for `job`.",
            examples=["job-01j"],
            title="Job Id",
        ),
    ] = None
    worker: Annotated[
        int | None,
        Field(
            description="The worker of that job, 0 by default, for `job`.",
            examples=[0],
            title="Worker",
        ),
    ] = None
    url: Annotated[
        str | None,
        Field(
            description="The address, for `web` and `git`.",
            examples=["https://example.com/digits.tar.gz"],
            title="Url",
        ),
    ] = None
    sha256: Annotated[
        str | None,
        Field(
            description="The hash that the file must have, for `web`; by default any file is taken.",
            examples=["9f86d081884c7d65…"],
            title="Sha256",
        ),
    ] = None
    unpack: Annotated[
        bool | None,
        Field(
            description="Whether an archive is unpacked, for `web`; by default it is.",
            examples=[False],
            title="Unpack",
        ),
    ] = None
    revision: Annotated[
        str | None,
        Field(
            description="A branch, a tag or a commit, for `git` and `huggingface`.",
            examples=["main"],
            title="Revision",
        ),
    ] = None
    bucket: Annotated[
        str | None,
        Field(
            description="The bucket, for `aws`, `wasabi` and `gcp`.",
            examples=["sets"],
            title="Bucket",
        ),
    ] = None
    prefix: Annotated[
        str | None,
        Field(
            description="What the names of the objects begin with, up to a `/`, for buckets and `azure`.",
            examples=["digits/2026"],
            title="Prefix",
        ),
    ] = None
    region: Annotated[
        str | None,
        Field(
            description="The region of the bucket, for `aws` and `wasabi`.",
            examples=["eu-central-1"],
            title="Region",
        ),
    ] = None
    account: Annotated[
        str | None,
        Field(
            description="The storage account, for `azure`.",
            examples=["clinicstore"],
            title="Account",
        ),
    ] = None
    container: Annotated[
        str | None,
        Field(
            description="The container, for `azure`.",
            examples=["sets"],
            title="Container",
        ),
    ] = None
    repo: Annotated[
        str | None,
        Field(
            description="The repository, for `huggingface`.",
            examples=["google-bert/bert-base-uncased"],
            title="Repo",
        ),
    ] = None
    kind: Annotated[
        str | None,
        Field(
            description="Whether the repository is a `model`, as by default, or a `dataset`, for `huggingface`.",
            examples=["dataset"],
            title="Kind",
        ),
    ] = None
    dataset: Annotated[
        str | None,
        Field(
            description="The dataset, for `kaggle`.",
            examples=["uciml/iris"],
            title="Dataset",
        ),
    ] = None
    version: Annotated[
        int | None,
        Field(
            description="Its version, for `kaggle`; by default the newest.",
            examples=[2],
            title="Version",
        ),
    ] = None
    secret: Annotated[
        str | None,
        Field(
            description="The project's secret that opens it, for `aws`, `wasabi` and `huggingface`, where no third-party key does.",
            examples=["bucket_key"],
            title="Secret",
        ),
    ] = None
    with_key: Annotated[
        bool | None,
        Field(
            description="Whether it is read with the project's third-party key of its type; by default if the project has one, and you may use it.",
            examples=[True],
            title="With Key",
        ),
    ] = None


class Invitation(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    project_id: Annotated[str | None, Field(title="Project Id")]
    permissions: Annotated[dict[str, str] | None, Field(title="Permissions")]
    role: Annotated[str | None, Field(title="Role")]
    email: Annotated[str, Field(title="Email")]
    inviter_user_id: Annotated[str, Field(title="Inviter User Id")]
    status: Annotated[str, Field(title="Status")]
    accepted_by: Annotated[str | None, Field(title="Accepted By")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]
    expires_at: Annotated[AwareDatetime, Field(title="Expires At")]


class ProjectId2(RootModel[str]):
    root: Annotated[str, Field(max_length=100, title="Project Id")]


class InvitationCreation(BaseModel):
    """
    An invitation to a project with permissions there, or to the account with a role there.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    email: Annotated[str, Field(max_length=254, title="Email")]
    project_id: Annotated[ProjectId2 | None, Field(title="Project Id")] = None
    permissions: Annotated[dict[str, Literal["read", "all"]] | None, Field(title="Permissions")] = (
        None
    )
    role: Annotated[Literal["owner", "member", "billing"] | None, Field(title="Role")] = None


class InvitationPage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[Invitation], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class JobAssignment(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    worker: Annotated[int, Field(title="Worker")]
    attempt: Annotated[int, Field(title="Attempt")]
    node_id: Annotated[str, Field(title="Node Id")]
    node_name: Annotated[str, Field(title="Node Name")]
    region_id: Annotated[str, Field(title="Region Id")]
    gpu_indices: Annotated[list[int], Field(title="Gpu Indices")]
    cpu_count: Annotated[int, Field(title="Cpu Count")]
    memory_bytes: Annotated[int, Field(title="Memory Bytes")]
    state: Annotated[str, Field(title="State")]
    reserved_at: Annotated[AwareDatetime, Field(title="Reserved At")]
    released_at: Annotated[AwareDatetime | None, Field(title="Released At")]


class JobLink(BaseModel):
    """
    The link by which its holder's browser sees what a job serves at its port.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    job_id: Annotated[str, Field(title="Job Id")]
    url: Annotated[str, Field(title="Url")]
    ready: Annotated[bool, Field(title="Ready")]
    expires_at: Annotated[AwareDatetime, Field(title="Expires At")]


class JobModelReference(BaseModel):
    """
    A model of the platform, and what its owner asks for it.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(description="The id of the model.", examples=["mod-01j"], title="Id")]
    project_id: Annotated[
        str | None,
        Field(
            description="The project that has the model: the job's own, or another one for a federated job.",
            examples=["prj-01j"],
            title="Project Id",
        ),
    ] = None
    needs_attestation: Annotated[
        bool,
        Field(
            description="Whether a machine gets the key of the model only after it has proved what runs on it (confidential computing); for federated jobs alone.",
            examples=[True],
            title="Needs Attestation",
        ),
    ] = False


class JobOfArray(BaseModel):
    """
    One job of an array; its number is the end of its name.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    name: Annotated[str, Field(title="Name")]


class JobSource(BaseModel):
    """
    The output of one worker of a job of the same project.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    type: Annotated[Literal["job"], Field(title="Type")]
    job_id: Annotated[str, Field(max_length=100, pattern="^job-[0-9a-z]{26}$", title="Job Id")]
    worker: Annotated[int, Field(ge=0, le=10000, title="Worker")] = 0


class JobWorker(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    index: Annotated[int, Field(title="Index")]
    status: Annotated[str, Field(title="Status")]
    node_id: Annotated[str | None, Field(title="Node Id")]
    node_name: Annotated[str | None, Field(title="Node Name")]
    address: Annotated[str | None, Field(title="Address")]
    lease_id: Annotated[str | None, Field(title="Lease Id")]
    gpu_uuids: Annotated[list[str], Field(title="Gpu Uuids")]
    exit_code: Annotated[int | None, Field(title="Exit Code")]
    signal: Annotated[int | None, Field(title="Signal")]
    reason: Annotated[str | None, Field(title="Reason")]
    elapsed_s: Annotated[float, Field(title="Elapsed S")]
    started_at: Annotated[AwareDatetime | None, Field(title="Started At")]
    finished_at: Annotated[AwareDatetime | None, Field(title="Finished At")]


class JobsKilled(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    job_ids: Annotated[list[str], Field(title="Job Ids")]


class JoinTokenCreation(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    region_id: Annotated[str, Field(max_length=100, title="Region Id")]
    expires_in_s: Annotated[int, Field(ge=60, le=604800, title="Expires In S")] = 86400


class Version(RootModel[int]):
    root: Annotated[int, Field(ge=1, le=1000000, title="Version")]


class KaggleSource(BaseModel):
    """
    The files of one version of a dataset at Kaggle.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    with_key: Annotated[bool | None, Field(title="With Key")] = None
    type: Annotated[Literal["kaggle"], Field(title="Type")]
    dataset: Annotated[
        str,
        Field(
            max_length=200,
            pattern="^[A-Za-z0-9][A-Za-z0-9_-]*/[A-Za-z0-9][A-Za-z0-9_-]*$",
            title="Dataset",
        ),
    ]
    version: Annotated[Version | None, Field(title="Version")] = None


class LeaseStatus(
    RootModel[
        Literal[
            "reserved", "creating", "waiting_for_ssh", "ready", "releasing", "released", "refused"
        ]
    ]
):
    root: Annotated[
        Literal[
            "reserved", "creating", "waiting_for_ssh", "ready", "releasing", "released", "refused"
        ],
        Field(
            description="The statuses of a lease, the lifecycle `lease/{id}`.",
            title="LeaseStatus",
        ),
    ]


class LeasedOffer(BaseModel):
    """
    The machine offer of a lease: where its machine is or is requested, and of which type.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    zone: Annotated[str, Field(title="Zone")]
    machine_type: Annotated[str, Field(title="Machine Type")]
    gpu_type: Annotated[str | None, Field(title="Gpu Type")]
    gpu_count: Annotated[int, Field(title="Gpu Count")]
    spot: Annotated[bool, Field(title="Spot")]


class LeavingAllocation(BaseModel):
    """
    What a run still holds whose job has ended, because nobody has seen the run end.

    The node ends the run, and frees the allocation when it has. No run outlives a restart of its
    machine.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    job_id: Annotated[str, Field(title="Job Id")]
    worker: Annotated[int, Field(title="Worker")]
    attempt: Annotated[int, Field(title="Attempt")]
    gpu_indices: Annotated[list[int], Field(title="Gpu Indices")]
    cpu_count: Annotated[int, Field(title="Cpu Count")]
    memory_bytes: Annotated[int, Field(title="Memory Bytes")]
    reserved_at: Annotated[AwareDatetime, Field(title="Reserved At")]


class LedgerCheck(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    name: Annotated[str, Field(title="Name")]
    what: Annotated[str, Field(title="What")]
    difference_count: Annotated[int, Field(title="Difference Count")]


class LedgerDifference(BaseModel):
    """
    Something in the ledger that is not as it must be.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    check: Annotated[str, Field(title="Check")]
    subject: Annotated[str, Field(title="Subject")]
    what: Annotated[str, Field(title="What")]
    expected: Annotated[str, Field(title="Expected")]
    found: Annotated[str, Field(title="Found")]


class LogPiece(BaseModel):
    """
    A piece of a worker's log: the data of a message of a stream of logs.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    worker: Annotated[int, Field(title="Worker")]
    offset: Annotated[int, Field(title="Offset")]
    text: Annotated[str, Field(title="Text")]


class MachineEnding(BaseModel):
    """
    What terminates a machine: its lease, or the provider's workflow for an orphaned machine.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    provider_id: Annotated[str, Field(title="Provider Id")]
    name: Annotated[str, Field(title="Name")]
    zone: Annotated[str, Field(title="Zone")]
    lease_id: Annotated[str | None, Field(title="Lease Id")]


class MeasuredSlice(BaseModel):
    """
    A transaction about some measured seconds of a run, on the books of whoever asks.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    transaction_id: Annotated[str, Field(title="Transaction Id")]
    kind: Annotated[str, Field(title="Kind")]
    from_s: Annotated[int, Field(title="From S")]
    through_s: Annotated[int, Field(title="Through S")]
    amount_microcredits: Annotated[int, Field(title="Amount Microcredits")]
    posted_at: Annotated[AwareDatetime | None, Field(title="Posted At")]
    reversed_by: Annotated[str | None, Field(title="Reversed By")]


class Member(BaseModel):
    """
    A user of another account who may use a project.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    project_id: Annotated[str, Field(title="Project Id")]
    user_id: Annotated[str, Field(title="User Id")]
    email: Annotated[str, Field(title="Email")]
    permissions: Annotated[dict[str, str], Field(title="Permissions")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]


class MemberChange(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    permissions: Annotated[
        dict[str, Literal["read", "all"]],
        Field(max_length=7, min_length=1, title="Permissions"),
    ]


class MemberPage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[Member], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class ModelReference(BaseModel):
    """
    A model of the platform.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(description="The id of the model.", examples=["mod-01j"], title="Id")]
    project_id: Annotated[
        str | None,
        Field(
            description="The project that has the model: the job's own, or another one for a federated job.",
            examples=["prj-01j"],
            title="Project Id",
        ),
    ] = None


class NewApiKey(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    user_id: Annotated[str, Field(title="User Id")]
    parent_key_id: Annotated[str | None, Field(title="Parent Key Id")]
    name: Annotated[str, Field(title="Name")]
    scopes: Annotated[list[str], Field(title="Scopes")]
    requests_per_minute: Annotated[int | None, Field(title="Requests Per Minute")]
    expires_at: Annotated[AwareDatetime | None, Field(title="Expires At")]
    last_used_at: Annotated[AwareDatetime | None, Field(title="Last Used At")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]
    secret: Annotated[str, Field(title="Secret")]


class NewInvitation(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    project_id: Annotated[str | None, Field(title="Project Id")]
    permissions: Annotated[dict[str, str] | None, Field(title="Permissions")]
    role: Annotated[str | None, Field(title="Role")]
    email: Annotated[str, Field(title="Email")]
    inviter_user_id: Annotated[str, Field(title="Inviter User Id")]
    status: Annotated[str, Field(title="Status")]
    accepted_by: Annotated[str | None, Field(title="Accepted By")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]
    expires_at: Annotated[AwareDatetime, Field(title="Expires At")]
    secret: Annotated[str, Field(title="Secret")]


class NewJoinToken(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    region_id: Annotated[str, Field(title="Region Id")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]
    expires_at: Annotated[AwareDatetime, Field(title="Expires At")]
    ssh_public_key: Annotated[str, Field(title="Ssh Public Key")]
    secret: Annotated[str, Field(title="Secret")]


class NodeChange(BaseModel):
    """
    A change of a node; fields that are left out keep their values.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    mining: Annotated[bool | None, Field(title="Mining")] = None


class MinionId(RootModel[str]):
    root: Annotated[str, Field(max_length=50, title="Minion Id")]


class Gpus(RootModel[str]):
    root: Annotated[str, Field(max_length=100, title="Gpus")]


class NodeCreation(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    region_id: Annotated[str, Field(max_length=100, title="Region Id")]
    name: Annotated[str, Field(max_length=100, min_length=1, title="Name")]
    minion_id: Annotated[MinionId | None, Field(title="Minion Id")] = None
    gpus: Annotated[Gpus | None, Field(title="Gpus")] = None
    disk_size_gb: Annotated[int, Field(ge=50, le=2000, title="Disk Size Gb")] = 100
    type: Annotated[Literal["permanent", "ephemeral"], Field(title="Type")] = "permanent"
    services: Annotated[
        list[Literal["compute", "storage"]],
        Field(max_length=2, min_length=1, title="Services"),
    ] = ["compute"]
    upnp: Annotated[bool, Field(title="Upnp")] = True
    mining: Annotated[bool, Field(title="Mining")] = False
    address: Annotated[Address | None, Field(title="Address")] = None
    port: Annotated[int, Field(ge=1, le=65535, title="Port")] = 22
    user: Annotated[str, Field(max_length=33, title="User")] = "root"


class NodeDisk(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    name: Annotated[str, Field(title="Name")]
    size_bytes: Annotated[int, Field(title="Size Bytes")]
    rotational: Annotated[bool | None, Field(title="Rotational")]
    transport: Annotated[str | None, Field(title="Transport")]


class NodeGpu(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    index: Annotated[int, Field(title="Index")]
    name: Annotated[str, Field(title="Name")]
    uuid: Annotated[str, Field(title="Uuid")]
    memory_mib: Annotated[int | None, Field(title="Memory Mib")]
    pcie_generation: Annotated[int | None, Field(title="Pcie Generation")]
    pcie_lanes: Annotated[int | None, Field(title="Pcie Lanes")]
    driver_version: Annotated[str | None, Field(title="Driver Version")]
    job_id: Annotated[str | None, Field(title="Job Id")]


class NodeHardware(BaseModel):
    """
    The hardware of a node, as the inspection found it.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    hostname: Annotated[str, Field(title="Hostname")]
    os_name: Annotated[str, Field(title="Os Name")]
    kernel: Annotated[str, Field(title="Kernel")]
    python_version: Annotated[str, Field(title="Python Version")]
    cpu_count: Annotated[int, Field(title="Cpu Count")]
    core_count: Annotated[int | None, Field(title="Core Count")]
    cpu_model: Annotated[str, Field(title="Cpu Model")]
    memory_bytes: Annotated[int, Field(title="Memory Bytes")]
    free_disk_bytes: Annotated[int, Field(title="Free Disk Bytes")]
    disk_bytes: Annotated[int, Field(title="Disk Bytes")]
    disks: Annotated[list[NodeDisk], Field(title="Disks")]
    network_mbps: Annotated[int | None, Field(title="Network Mbps")]
    tpm: Annotated[bool, Field(title="Tpm")]
    is_root: Annotated[bool, Field(title="Is Root")]
    runtimes: Annotated[list[str], Field(title="Runtimes")]
    addresses: Annotated[list[str], Field(title="Addresses")]
    reboot_required: Annotated[bool, Field(title="Reboot Required")]


class NodeIdleWorkload(BaseModel):
    """
    What the node itself says of its idle workload, at most an hour old.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    state: Annotated[str, Field(title="State")]
    run_s: Annotated[float, Field(title="Run S")]
    energy_joules: Annotated[float | None, Field(title="Energy Joules")]
    energy_s: Annotated[float, Field(title="Energy S")]
    reason: Annotated[str, Field(title="Reason")]
    at: Annotated[AwareDatetime | None, Field(title="At")]


class NodeLeftOut(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    node_id: Annotated[str, Field(title="Node Id")]
    name: Annotated[str, Field(title="Name")]
    reason: Annotated[str, Field(title="Reason")]


class NodePreparation(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    job_user: Annotated[str | None, Field(title="Job User")]
    closed_logins: Annotated[bool, Field(title="Closed Logins")]
    unreachable_peers: Annotated[list[str], Field(title="Unreachable Peers")]
    trusted_only_reason: Annotated[str | None, Field(title="Trusted Only Reason")]
    cache: Annotated[str | None, Field(title="Cache")]
    cache_is_secure: Annotated[bool, Field(title="Cache Is Secure")]
    no_cache_reason: Annotated[str | None, Field(title="No Cache Reason")]
    nfs_way: Annotated[str | None, Field(title="Nfs Way")]
    smb_way: Annotated[str | None, Field(title="Smb Way")]


class NodeReplacement(BaseModel):
    """
    A machine that you own, and that takes the place of a storage node.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    name: Annotated[str, Field(max_length=100, min_length=1, title="Name")]
    minion_id: Annotated[str, Field(max_length=50, title="Minion Id")]
    upnp: Annotated[bool, Field(title="Upnp")] = True
    address: Annotated[Address | None, Field(title="Address")] = None
    port: Annotated[int, Field(ge=1, le=65535, title="Port")] = 22
    user: Annotated[str, Field(max_length=33, title="User")] = "root"


class NodeRequirement(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    name: Annotated[str, Field(title="Name")]
    required: Annotated[str, Field(title="Required")]
    found: Annotated[str, Field(title="Found")]
    passed: Annotated[bool, Field(title="Passed")]
    relaxed: Annotated[bool, Field(title="Relaxed")]


class ObjectStoreSource(BaseModel):
    """
    The objects of a bucket at Amazon or Wasabi whose names begin alike.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    with_key: Annotated[bool | None, Field(title="With Key")] = None
    type: Annotated[Literal["aws", "wasabi"], Field(title="Type")]
    bucket: Annotated[
        str,
        Field(
            max_length=63,
            min_length=3,
            pattern="^[a-z0-9][a-z0-9.-]*[a-z0-9]$",
            title="Bucket",
        ),
    ]
    prefix: Annotated[str, Field(max_length=900, title="Prefix")] = ""
    region: Annotated[str, Field(max_length=32, pattern="^[a-z0-9][a-z0-9-]*$", title="Region")] = (
        "us-east-1"
    )
    secret: Annotated[Secret | None, Field(title="Secret")] = None


class Offer(BaseModel):
    """
    An offer: a node with free slots, or a machine that a cloud would create for each worker.

    Offers are in the order in which placement would take them.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    rank: Annotated[int, Field(title="Rank")]
    offer_id: Annotated[str, Field(title="Offer Id")]
    node_id: Annotated[str | None, Field(title="Node Id")]
    node_name: Annotated[str, Field(title="Node Name")]
    machine_type: Annotated[str | None, Field(title="Machine Type")]
    spot: Annotated[bool, Field(title="Spot")]
    zones: Annotated[list[str], Field(title="Zones")]
    region_id: Annotated[str, Field(title="Region Id")]
    region_name: Annotated[str, Field(title="Region Name")]
    provider_id: Annotated[str | None, Field(title="Provider Id")]
    provider_name: Annotated[str | None, Field(title="Provider Name")]
    provider_kind: Annotated[str, Field(title="Provider Kind")]
    owned: Annotated[bool, Field(title="Owned")]
    gpu_type: Annotated[str | None, Field(title="Gpu Type")]
    gpu_count: Annotated[int, Field(title="Gpu Count")]
    free_gpu_count: Annotated[int, Field(title="Free Gpu Count")]
    cpu_count: Annotated[int, Field(title="Cpu Count")]
    free_cpu_count: Annotated[int, Field(title="Free Cpu Count")]
    memory_bytes: Annotated[int, Field(title="Memory Bytes")]
    free_memory_bytes: Annotated[int, Field(title="Free Memory Bytes")]
    workers_that_fit: Annotated[int, Field(title="Workers That Fit")]
    preferred: Annotated[bool, Field(title="Preferred")]
    microcredits_per_gpu_hour: Annotated[int, Field(title="Microcredits Per Gpu Hour")]
    microcredits_per_hour: Annotated[int, Field(title="Microcredits Per Hour")]
    price_is_estimate: Annotated[bool, Field(title="Price Is Estimate")]
    price_read_on: Annotated[date | None, Field(title="Price Read On")]
    read_at: Annotated[AwareDatetime | None, Field(title="Read At")]


class LimitBytes(RootModel[int]):
    root: Annotated[int, Field(ge=1000000, le=2000000000000, title="Limit Bytes")]


class OutputDestination(BaseModel):
    """
    The destination of a job's output.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    type: Annotated[
        str,
        Field(
            description="`local`: the platform's own store. `regional`: a folder of a datastore, in whose region the job then runs. Training and inference alone have others, to which the stored output is sent when the job has finished: `aws`, `wasabi`, `gcp`, `azure`, `git`, `huggingface` and `kaggle` with the project's third-party key of the type, `web`, and `dataset`, `model` or `checkpoint`, which is made of it. The platform's own store has it as well.",
            examples=["local"],
            title="Type",
        ),
    ]
    upload_id: Annotated[
        str | None,
        Field(
            description="The upload of an archive, for input alone; its files are what BASELOAD_INPUT has.",
            examples=["upl-01j"],
            title="Upload Id",
        ),
    ] = None
    datastore_id: Annotated[
        str | None,
        Field(
            description="The datastore, for `regional` alone (`baseload datastore ls`).",
            examples=["dst-01j"],
            title="Datastore Id",
        ),
    ] = None
    path: Annotated[
        str | None,
        Field(
            description="The folder of the datastore, relative to its root and never above it; `/` is all of it, and the default. Links on the way are not followed. Output of several workers goes into `worker-0`, `worker-1` and so on below it.",
            examples=["sets/digits"],
            title="Path",
        ),
    ] = None
    url: Annotated[
        str | None,
        Field(
            description="The address, for `web`, to which a tar.gz is sent by PUT, and the repository, for `git`.",
            examples=["https://example.com/in/{job_id}.tar.gz"],
            title="Url",
        ),
    ] = None
    secret: Annotated[
        str | None,
        Field(
            description="The project's secret that is sent as the header Authorization, for `web`.",
            examples=["upload_token"],
            title="Secret",
        ),
    ] = None
    branch: Annotated[
        str | None,
        Field(
            description="The branch that gets a commit with the output, `main` by default, for `git` and `huggingface`.",
            examples=["results"],
            title="Branch",
        ),
    ] = None
    bucket: Annotated[
        str | None,
        Field(
            description="The bucket, for `aws`, `wasabi` and `gcp`.",
            examples=["results"],
            title="Bucket",
        ),
    ] = None
    prefix: Annotated[
        str | None,
        Field(
            description="The folder there, for all but `web`, `kaggle` and what the platform has; `{job_id}` stands for the id of the job, and an array must have it. What is there under the same names is replaced. Output of several workers goes into `worker-0`, `worker-1` and so on below it.",
            examples=["runs/{job_id}"],
            title="Prefix",
        ),
    ] = None
    region: Annotated[
        str | None,
        Field(
            description="The region of the bucket, for `aws` and `wasabi`.",
            examples=["eu-central-1"],
            title="Region",
        ),
    ] = None
    account: Annotated[
        str | None,
        Field(
            description="The storage account, for `azure`.",
            examples=["clinicstore"],
            title="Account",
        ),
    ] = None
    container: Annotated[
        str | None,
        Field(
            description="The container, for `azure`.",
            examples=["results"],
            title="Container",
        ),
    ] = None
    repo: Annotated[
        str | None,
        Field(
            description="The repository, which must be there, for `huggingface`.",
            examples=["clinic/digits"],
            title="Repo",
        ),
    ] = None
    kind: Annotated[
        str | None,
        Field(
            description="Whether the repository is a `model`, as by default, or a `dataset`, for `huggingface`.",
            examples=["dataset"],
            title="Kind",
        ),
    ] = None
    dataset: Annotated[
        str | None,
        Field(
            description="The dataset, which must be there and gets a new version, for `kaggle`.",
            examples=["clinic/digits"],
            title="Dataset",
        ),
    ] = None
    name: Annotated[
        str | None,
        Field(
            description="The name of the new dataset, model or checkpoint; the id of the job by default.",
            examples=["digits-{job_id}"],
            title="Name",
        ),
    ] = None


class WalletAddress(RootModel[str]):
    root: Annotated[str, Field(max_length=200, min_length=1, title="Wallet Address")]


class OwnAccountChange(BaseModel):
    """
    A change of the caller's own account; fields that are left out keep their values.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    name: Annotated[Name | None, Field(title="Name")] = None
    wallet_address: Annotated[WalletAddress | None, Field(title="Wallet Address")] = None
    wallets: Annotated[
        dict[Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9]{1,9}$", max_length=10)], str]
        | None,
        Field(title="Wallets"),
    ] = None
    idle_workload: IdleWorkload | None = None


class PlacementRefusal(BaseModel):
    """
    Why placement did not take one offer.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    offer_id: Annotated[str, Field(title="Offer Id")]
    region_id: Annotated[str | None, Field(title="Region Id")]
    code: Annotated[str, Field(title="Code")]
    detail: Annotated[str, Field(title="Detail")]
    ever: Annotated[bool, Field(title="Ever")]


class Platform(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    ssh_key_fingerprint: Annotated[str, Field(title="Ssh Key Fingerprint")]


class Posting(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    ledger_account: Annotated[str, Field(title="Ledger Account")]
    amount_microcredits: Annotated[int, Field(title="Amount Microcredits")]


class Project1(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    name: Annotated[str, Field(title="Name")]
    personal: Annotated[bool, Field(title="Personal")]
    use_only_owned_resources: Annotated[bool, Field(title="Use Only Owned Resources")]
    on_quota_exhausted: Annotated[str, Field(title="On Quota Exhausted")]
    federated_egress: Annotated[list[str], Field(title="Federated Egress")]
    federated_logs: Annotated[str, Field(title="Federated Logs")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]
    updated_at: Annotated[AwareDatetime, Field(title="Updated At")]


class FederatedEgressItem(RootModel[str]):
    root: Annotated[str, Field(max_length=300)]


class FederatedEgress(RootModel[list[FederatedEgressItem]]):
    root: Annotated[list[FederatedEgressItem], Field(max_length=100, title="Federated Egress")]


class ProjectChange(BaseModel):
    """
    A change of a project; fields that are left out keep their values.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    name: Annotated[Name | None, Field(title="Name")] = None
    use_only_owned_resources: Annotated[bool | None, Field(title="Use Only Owned Resources")] = None
    on_quota_exhausted: Annotated[
        Literal["reroute", "fail"] | None, Field(title="On Quota Exhausted")
    ] = None
    federated_egress: Annotated[FederatedEgress | None, Field(title="Federated Egress")] = None
    federated_logs: Annotated[
        Literal["none", "exit_only", "all"] | None, Field(title="Federated Logs")
    ] = None


class ProjectCreation(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    name: Annotated[str, Field(max_length=100, min_length=1, title="Name")]
    use_only_owned_resources: Annotated[bool, Field(title="Use Only Owned Resources")] = False
    on_quota_exhausted: Annotated[Literal["reroute", "fail"], Field(title="On Quota Exhausted")] = (
        "reroute"
    )
    federated_egress: Annotated[
        list[FederatedEgressItem],
        Field(max_length=100, title="Federated Egress", validate_default=True),
    ] = []
    federated_logs: Annotated[
        Literal["none", "exit_only", "all"], Field(title="Federated Logs")
    ] = "none"


class ProjectMembership(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    project_id: Annotated[str, Field(title="Project Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    name: Annotated[str, Field(title="Name")]
    permissions: Annotated[dict[str, str], Field(title="Permissions")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]


class ProjectPage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[Project1], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class ProjectSecret(BaseModel):
    """
    A secret of a project, without its value, which cannot be read again.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    name: Annotated[str, Field(title="Name")]
    reference: Annotated[str, Field(title="Reference")]
    updated_at: Annotated[AwareDatetime, Field(title="Updated At")]


class ProjectSecretCreation(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    name: Annotated[
        str, Field(max_length=100, pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$", title="Name")
    ]
    value: Annotated[str, Field(max_length=65536, min_length=1, title="Value")]


class ProjectSecretPage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[ProjectSecret], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class PreferredCreditsMicrocredits(RootModel[int]):
    root: Annotated[int, Field(gt=0, le=1000000000000000, title="Preferred Credits Microcredits")]


class ProviderChange(BaseModel):
    """
    A change of a provider; fields that are left out keep their values.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    credentials: Annotated[dict[str, Any] | str | None, Field(title="Credentials")] = None
    preferred_credits_microcredits: Annotated[
        PreferredCreditsMicrocredits | None,
        Field(title="Preferred Credits Microcredits"),
    ] = None
    waive_usage_fee: Annotated[bool | None, Field(title="Waive Usage Fee")] = None


class ProviderCheck(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    name: Annotated[str, Field(title="Name")]
    status: Annotated[str, Field(title="Status")]
    detail: Annotated[str, Field(title="Detail")]
    fix: Annotated[str, Field(title="Fix")]


class ProviderCredentials(BaseModel):
    """
    The credential of a provider: where the key is, and the parts that are not secret.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    reference: Annotated[str, Field(title="Reference")]
    read_only: Annotated[bool, Field(title="Read Only")]
    project_id: Annotated[str, Field(title="Project Id")]
    service_account: Annotated[str, Field(title="Service Account")]
    key: Annotated[str, Field(title="Key")]


class ProviderEndpoint(BaseModel):
    """
    Where the notebook of a provider has announced itself.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    host: Annotated[str, Field(title="Host")]
    port: Annotated[int, Field(title="Port")]
    ssh_user: Annotated[str, Field(title="Ssh User")]
    minion_id: Annotated[str, Field(title="Minion Id")]
    gpu_type: Annotated[str | None, Field(title="Gpu Type")]
    gpu_count: Annotated[int, Field(title="Gpu Count")]
    announced_at: Annotated[AwareDatetime, Field(title="Announced At")]
    expires_at: Annotated[AwareDatetime, Field(title="Expires At")]
    held_by: Annotated[str | None, Field(title="Held By")]


class ProviderMachine(BaseModel):
    """
    A machine that carries the provider's ownership label.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    name: Annotated[str, Field(title="Name")]
    zone: Annotated[str, Field(title="Zone")]
    state: Annotated[str, Field(title="State")]
    provider_machine_id: Annotated[str | None, Field(title="Provider Machine Id")]
    microcredits_per_hour: Annotated[int | None, Field(title="Microcredits Per Hour")]
    began_at: Annotated[AwareDatetime | None, Field(title="Began At")]
    lease_id: Annotated[str | None, Field(title="Lease Id")]
    held: Annotated[bool, Field(title="Held")]


class ProviderMachineList(BaseModel):
    """
    All machines with our ownership label that the provider lists now.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    provider_id: Annotated[str, Field(title="Provider Id")]
    read_at: Annotated[AwareDatetime, Field(title="Read At")]
    items: Annotated[list[ProviderMachine], Field(title="Items")]


class ProviderReconciliation(BaseModel):
    """
    What the comparison of one provider's machines with its leases has found.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    provider_id: Annotated[str, Field(title="Provider Id")]
    name: Annotated[str, Field(title="Name")]
    kind: Annotated[str, Field(title="Kind")]
    read_at: Annotated[AwareDatetime, Field(title="Read At")]
    failure: Annotated[str | None, Field(title="Failure")]
    machine_count: Annotated[int, Field(title="Machine Count")]
    ending: Annotated[list[ProviderMachine], Field(title="Ending")]
    unknown: Annotated[list[ProviderMachine], Field(title="Unknown")]
    missing: Annotated[list[str], Field(title="Missing")]


class ProviderResource(BaseModel):
    """
    A cloud resource that was created for the whole provider.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    name: Annotated[str, Field(title="Name")]
    path: Annotated[str, Field(title="Path")]


class Purchase(BaseModel):
    """
    A payment that was received for credits, as an administrator records it.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    amount_microcredits: Annotated[
        int, Field(gt=0, le=1000000000000000, title="Amount Microcredits")
    ]
    reference: Annotated[str, Field(max_length=200, min_length=1, title="Reference")]


class Quota(BaseModel):
    """
    One limit of the cloud; a value that the cloud does not give is null, which is not 0.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    metric: Annotated[str, Field(title="Metric")]
    place: Annotated[str, Field(title="Place")]
    limit: Annotated[int | None, Field(title="Limit")]
    used: Annotated[int | None, Field(title="Used")]
    free: Annotated[int | None, Field(title="Free")]


class Readiness(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    status: Annotated[str, Field(title="Status")]
    database: Annotated[str | None, Field(title="Database")]
    temporal: Annotated[str | None, Field(title="Temporal")]


class Reconciliation(BaseModel):
    """
    What was found at each provider, and whether the orphaned machines are being terminated.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    end: Annotated[bool, Field(title="End")]
    items: Annotated[list[ProviderReconciliation], Field(title="Items")]


class ProviderId(RootModel[str]):
    root: Annotated[str, Field(max_length=100, title="Provider Id")]


class ReconciliationRequest(BaseModel):
    """
    A reconciliation of one provider of the account, or of all.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    provider_id: Annotated[ProviderId | None, Field(title="Provider Id")] = None
    end: Annotated[bool, Field(title="End")] = False


class Region(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    name: Annotated[str, Field(title="Name")]
    status: Annotated[str, Field(title="Status")]
    status_reason: Annotated[str | None, Field(title="Status Reason")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]
    updated_at: Annotated[AwareDatetime, Field(title="Updated At")]
    workflow_id: Annotated[str, Field(title="Workflow Id")]
    provider_id: Annotated[str, Field(title="Provider Id")]
    provider_kind: Annotated[str, Field(title="Provider Kind")]
    storage_mode: Annotated[str, Field(title="Storage Mode")]
    cloud_region: Annotated[str | None, Field(title="Cloud Region")]
    storage_node_class: Annotated[str | None, Field(title="Storage Node Class")]
    public: Annotated[bool, Field(title="Public")]
    guest_policy: GuestPolicy | None
    exclusive_nodes: Annotated[bool, Field(title="Exclusive Nodes")]
    node_root: Annotated[str | None, Field(title="Node Root")]
    uses_internal_addresses: Annotated[bool, Field(title="Uses Internal Addresses")]
    relaxed_requirements: Annotated[list[str], Field(title="Relaxed Requirements")]
    own_worker: Annotated[bool, Field(title="Own Worker")]
    allows_apt_packages: Annotated[bool, Field(title="Allows Apt Packages")]
    trusted_only: Annotated[bool, Field(title="Trusted Only")]
    trusted_only_reason: Annotated[str | None, Field(title="Trusted Only Reason")]
    warnings: Annotated[list[str], Field(title="Warnings")]


class RegionChange(BaseModel):
    """
    What changes of a region; a field that is left out stays as it is.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    own_worker: Annotated[bool | None, Field(title="Own Worker")] = None
    allows_apt_packages: Annotated[bool | None, Field(title="Allows Apt Packages")] = None
    public: Annotated[bool | None, Field(title="Public")] = None
    guest_policy: GuestPolicy | None = None


class NodeRoot(RootModel[str]):
    root: Annotated[str, Field(max_length=401, title="Node Root")]


class CloudRegion(RootModel[str]):
    root: Annotated[str, Field(max_length=100, title="Cloud Region")]


class StorageNodeClass(RootModel[str]):
    root: Annotated[str, Field(max_length=100, title="Storage Node Class")]


class RelaxedRequirement(RootModel[str]):
    root: Annotated[str, Field(max_length=100)]


class RegionCreation(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    provider_id: Annotated[str, Field(max_length=100, title="Provider Id")]
    name: Annotated[str, Field(max_length=100, min_length=1, title="Name")]
    storage_mode: Annotated[Literal["local", "central"], Field(title="Storage Mode")] = "local"
    public: Annotated[bool, Field(title="Public")] = False
    guest_policy: GuestPolicy | None = None
    exclusive_nodes: Annotated[bool, Field(title="Exclusive Nodes")] = True
    node_root: Annotated[NodeRoot | None, Field(title="Node Root")] = None
    cloud_region: Annotated[CloudRegion | None, Field(title="Cloud Region")] = None
    storage_node_class: Annotated[StorageNodeClass | None, Field(title="Storage Node Class")] = None
    uses_internal_addresses: Annotated[bool, Field(title="Uses Internal Addresses")] = False
    relaxed_requirements: Annotated[
        list[RelaxedRequirement],
        Field(max_length=50, title="Relaxed Requirements", validate_default=True),
    ] = []
    own_worker: Annotated[bool, Field(title="Own Worker")] = False
    allows_apt_packages: Annotated[bool, Field(title="Allows Apt Packages")] = False


class RegionPage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[Region], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class RegionQuota(BaseModel):
    """
    The quota of one type of GPU in the region; null where the cloud does not give a value.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    gpu_type: Annotated[str, Field(title="Gpu Type")]
    spot: Annotated[bool, Field(title="Spot")]
    limiting: Annotated[str | None, Field(title="Limiting")]
    limit: Annotated[int | None, Field(title="Limit")]
    used: Annotated[int | None, Field(title="Used")]
    runnable_jobs: Annotated[int | None, Field(title="Runnable Jobs")]
    advice: Annotated[str, Field(title="Advice")]


class RegionQuotaPage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[RegionQuota], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class RegionalSource(BaseModel):
    """
    The files of a folder of a datastore, which a node of its region reads.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    type: Annotated[Literal["regional"], Field(title="Type")]
    datastore_id: Annotated[
        str, Field(max_length=100, pattern="^dst-[0-9a-z]{26}$", title="Datastore Id")
    ]
    path: Annotated[str, Field(max_length=1024, title="Path")] = "/"


class ReservationHolder(BaseModel):
    """
    The job that holds a reservation, and where it runs.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    job_id: Annotated[str, Field(title="Job Id")]
    job_name: Annotated[str, Field(title="Job Name")]
    job_status: Annotated[str, Field(title="Job Status")]
    node_id: Annotated[str, Field(title="Node Id")]
    node_name: Annotated[str, Field(title="Node Name")]
    since: Annotated[AwareDatetime, Field(title="Since")]


class Reversal(BaseModel):
    """
    The reversal of a transaction: another one with the opposite postings.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    reason: Annotated[str, Field(max_length=500, min_length=1, title="Reason")]


class RunMeasurement(BaseModel):
    """
    What each clock has measured of one run, what is posted of it, and how they differ.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    worker: Annotated[int, Field(title="Worker")]
    attempt: Annotated[int, Field(title="Attempt")]
    node_id: Annotated[str | None, Field(title="Node Id")]
    is_market_price: Annotated[bool, Field(title="Is Market Price")]
    node: ClockReading
    supervisor: ClockReading
    allocation: ClockReading
    measured_at: Annotated[AwareDatetime | None, Field(title="Measured At")]
    posted_s: Annotated[int, Field(title="Posted S")]
    unposted_s: Annotated[int | None, Field(title="Unposted S")]
    node_difference_s: Annotated[int | None, Field(title="Node Difference S")]
    allocation_difference_s: Annotated[int | None, Field(title="Allocation Difference S")]
    slices: Annotated[list[MeasuredSlice], Field(title="Slices")]


class RunnableJobs(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    gpu_type: Annotated[str, Field(title="Gpu Type")]
    gpu_count: Annotated[int, Field(title="Gpu Count")]
    spot: Annotated[bool, Field(title="Spot")]
    jobs: Annotated[int | None, Field(title="Jobs")]
    limiting: Annotated[str | None, Field(title="Limiting")]
    advice: Annotated[str, Field(title="Advice")]
    microcredits_per_hour: Annotated[int | None, Field(title="Microcredits Per Hour")]


class RunningWorker(BaseModel):
    """
    A worker of a job that runs, and what its command uses.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    job_id: Annotated[str, Field(title="Job Id")]
    job_name: Annotated[str, Field(title="Job Name")]
    worker: Annotated[int, Field(title="Worker")]
    status: Annotated[str, Field(title="Status")]
    node_id: Annotated[str | None, Field(title="Node Id")]
    node_name: Annotated[str | None, Field(title="Node Name")]
    elapsed_s: Annotated[int | None, Field(title="Elapsed S")]
    cpu_count: Annotated[int, Field(title="Cpu Count")]
    cpu_percent: Annotated[float | None, Field(title="Cpu Percent")]
    memory_limit_bytes: Annotated[int, Field(title="Memory Limit Bytes")]
    memory_bytes: Annotated[int | None, Field(title="Memory Bytes")]
    gpus: Annotated[list[Gpu], Field(title="Gpus")]
    microcredits_per_hour: Annotated[int | None, Field(title="Microcredits Per Hour")]
    measured_at: Annotated[AwareDatetime | None, Field(title="Measured At")]


class StatementLine(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    transaction_id: Annotated[str, Field(title="Transaction Id")]
    at: Annotated[AwareDatetime, Field(title="At")]
    kind: Annotated[str, Field(title="Kind")]
    description: Annotated[str, Field(title="Description")]
    job_id: Annotated[str | None, Field(title="Job Id")]
    amount_microcredits: Annotated[int, Field(title="Amount Microcredits")]
    balance_microcredits: Annotated[int, Field(title="Balance Microcredits")]
    project_id: Annotated[str | None, Field(title="Project Id")]
    provider_id: Annotated[str | None, Field(title="Provider Id")]
    region_id: Annotated[str | None, Field(title="Region Id")]
    device_id: Annotated[str | None, Field(title="Device Id")]


class SubmittedCode(BaseModel):
    """
    The code, as an archive that was uploaded.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    upload_id: Annotated[
        str,
        Field(
            description="The upload of the code, a `.tar.gz` sent to `POST /v1/uploads`.",
            examples=["upl-01j"],
            title="Upload Id",
        ),
    ]


class SubmittedEnvironment(BaseModel):
    """
    What the commands find: an image or packages, variables and secrets.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    image: Annotated[
        str | None,
        Field(
            description="A container image to run the commands in; without a registry it is of docker.io. Without this field they run on the machine itself.",
            examples=["pytorch/pytorch:latest"],
            title="Image",
        ),
    ] = None
    python_packages: Annotated[
        list[str],
        Field(
            description="Python packages by name, with versions if needed (PEP 508), at most 64. They are installed into a virtual environment, which is kept on the machine for the next job with the same.",
            examples=[["scikit-learn", "torch>=2.4"]],
            title="Python Packages",
        ),
    ] = []
    apt_packages: Annotated[
        list[str],
        Field(
            description="Debian packages by their exact names, at most 64; not with an image. They are of the job alone, and go with it, unless the machine's region has them installed onto it.",
            examples=[["ffmpeg"]],
            title="Apt Packages",
        ),
    ] = []
    requirements: Annotated[
        str | None,
        Field(
            description="A file of the code that says which packages the job needs: pip's requirements.txt, a pyproject.toml (with its uv.lock or pylock.toml, where there is one) or conda's environment.yml.",
            examples=["requirements.txt"],
            title="Requirements",
        ),
    ] = None
    setup: Annotated[
        list[str],
        Field(
            description="What each worker runs before its command, one after the other; a single one may be given as a text. If it fails, the job fails with the reason `setup`.",
            examples=["pip install -e ."],
            title="Setup",
        ),
    ] = []
    variables: Annotated[
        dict[str, str] | None,
        Field(
            description="Variables of the commands' environment. Their values are stored encrypted and never shown. Names do not begin with BASELOAD_.",
            examples=[{"EPOCHS": "20"}],
            title="Variables",
        ),
    ] = None
    secrets: Annotated[
        dict[str, str] | None,
        Field(
            description="Variables whose values are secrets of the job's project, each with the name of its secret (`baseload secret set`), or with the reference `store://projects/PROJECT/NAME`.",
            examples=[{"HF_TOKEN": "hf_token"}],
            title="Secrets",
        ),
    ] = None
    credentials: Annotated[
        list[str],
        Field(
            description="Third-party keys of the job's project that the commands get, each by its type (`baseload project key list`): as variables such as AWS_ACCESS_KEY_ID and HF_TOKEN, or as files below BASELOAD_KEYS that variables name, such as GOOGLE_APPLICATION_CREDENTIALS.",
            examples=[["aws", "huggingface"]],
            title="Credentials",
        ),
    ] = []
    image_credentials: Annotated[
        str | None,
        Field(
            description="The third-party key of the project with which the image is pulled, `docker` or `ngc`; the commands do not get it. By default the one that opens the registry of the image, if the project has one and you may use it.",
            examples=["docker"],
            title="Image Credentials",
        ),
    ] = None


class SubmittedPlacement(BaseModel):
    """
    On which machines the job may run.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    region_id: Annotated[
        str | None,
        Field(
            description="The only region to choose machines from; by default all regions.",
            examples=["reg-01j"],
            title="Region Id",
        ),
    ] = None
    providers: Annotated[
        list[str] | None,
        Field(
            description="Kinds, ids or names of the providers to choose from, the preferred ones first: the first one that has room gets the job, and a later one only if no earlier one has. By default all.",
            examples=[["runpod", "local"]],
            title="Providers",
        ),
    ] = None
    only_owned: Annotated[
        bool | None,
        Field(
            description="Whether the job runs on machines of its own account alone; by default as the project says.",
            examples=[True],
            title="Only Owned",
        ),
    ] = None
    spot: Annotated[
        Literal["allowed", "required", "never"] | None,
        Field(
            description="Whether the job may run on spot machines, which are cheaper and can be taken away at any time. By default allowed for training and inference, and never for notebooks and endpoints, which people use while they run.",
            examples=["never"],
        ),
    ] = None
    untrusted: Annotated[
        bool,
        Field(
            description="Whether the job's secrets and third-party keys may go to machines rented from strangers, who can read all that is on them. By default a job that has any takes none of these machines.",
            examples=[True],
            title="Untrusted",
        ),
    ] = False


class SubmittedResources(BaseModel):
    """
    The resources of each worker: `gpus` alone, `gpu_types` with `gpu_count`, or CPUs alone.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    gpus: Annotated[
        str | None,
        Field(
            description="The GPUs of each worker: `TYPE` for one, `TYPE:COUNT` for several, `cpu` for none. `baseload offers --gpus TYPE` says which machines would fit. Without this field and `gpu_types`, the job has none.",
            examples=["A100:4", "RTX4090:1", "cpu"],
            title="Gpus",
        ),
    ] = None
    gpu_types: Annotated[
        list[str] | None,
        Field(
            description="The GPU types of which any will do, with `gpu_count`; in place of `gpus`.",
            examples=[["A100", "H100"]],
            title="Gpu Types",
        ),
    ] = None
    gpu_count: Annotated[
        int | None,
        Field(
            description="How many GPUs each worker has, 1 to 64; with `gpu_types` alone.",
            examples=[4],
            title="Gpu Count",
        ),
    ] = None
    cpu_count: Annotated[
        int | None,
        Field(
            description="How many CPUs (logical cores) are reserved for each worker, 1 to 4096. A job without GPUs needs it; one with GPUs reserves none by default.",
            examples=[4],
            title="Cpu Count",
        ),
    ] = None
    memory_gib: Annotated[
        float | None,
        Field(
            description="How much memory is reserved for each worker, in GiB (2^30 bytes), above 0, at most 65536. By default 1.5 for each CPU, or 6 for each GPU if that is more. In an image (`environment.image`) the command cannot use more; elsewhere it can.",
            examples=[8],
            title="Memory Gib",
        ),
    ] = None
    disk_size_gb: Annotated[
        int,
        Field(
            description="How much disk each worker needs for its files, packages and output, in GB (10^9 bytes), 10 to 2000.",
            examples=[50],
            title="Disk Size Gb",
        ),
    ] = 10
    max_price_microcredits_per_gpu_hour: Annotated[
        int,
        Field(
            description="The highest price of one GPU for an hour, in microcredits: 2500000 is 2.50 credits. Dearer machines are refused.",
            examples=[2500000],
            title="Max Price Microcredits Per Gpu Hour",
        ),
    ] = 10000000


class SubmittedSafety(BaseModel):
    """
    What ends or limits the job, so that it costs no more than it should.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    price_cap_microcredits_per_hour: Annotated[
        int | None,
        Field(
            description="The highest cost of all workers together for an hour, in microcredits: 5000000 is 5 credits. By default there is none.",
            examples=[5000000],
            title="Price Cap Microcredits Per Hour",
        ),
    ] = None
    auto_terminate: Annotated[
        bool,
        Field(
            description="Whether a machine that was rented for the job is terminated when the job ends. With false it is retained when the job has finished or failed by itself, and costs money until a person removes its node or the deadline of its lease.",
            examples=[False],
            title="Auto Terminate",
        ),
    ] = True
    idle_timeout_s: Annotated[
        int,
        Field(
            description="Ends a training or inference job on leased machines after this many seconds without log output and GPU activity, 60 to 2592000.",
            examples=[3600],
            title="Idle Timeout S",
        ),
    ] = 1800
    end_all_on_failure: Annotated[
        bool,
        Field(
            description="Whether the failure of one worker ends the others.",
            examples=[False],
            title="End All On Failure",
        ),
    ] = True
    max_restarts: Annotated[
        int,
        Field(
            description="How often the job restarts after it has lost a machine, by a preemption or a power cut, 0 to 100.",
            examples=[10],
            title="Max Restarts",
        ),
    ] = 3
    max_retries: Annotated[
        int,
        Field(
            description="How often the job is tried again after a command has failed by itself (exit code other than 0), 0 to 100. Before each retry the job waits and costs nothing: 10 s at first, then twice as long each time, at most 5 min. Each attempt keeps its log and finds the resume state of the one before; the output is that of the last attempt alone.",
            examples=[2],
            title="Max Retries",
        ),
    ] = 0
    max_duration_s: Annotated[
        int | None,
        Field(
            description="Ends the job when its commands have run for this many seconds, 60 to 31536000, in all attempts together; waiting does not count. Its output is stored as after a cancel. Notebooks and endpoints are stopped. By default there is no limit.",
            examples=[86400],
            title="Max Duration S",
        ),
    ] = None


class SubmittedWorker(BaseModel):
    """
    One worker: one command on one machine.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    command: Annotated[
        str,
        Field(
            description="The command, which a shell (`/bin/sh`) runs in the folder of the code; at most 65536 characters. Exit code 0 means that it has succeeded.",
            examples=["python train.py"],
            title="Command",
        ),
    ]


class TcoMonth(BaseModel):
    """
    A month of owning against renting, at one utilisation of the GPUs by own jobs.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    is_now: Annotated[bool, Field(title="Is Now")]
    utilisation: Figure
    gpu_hours: Figure
    rental_microcredits: Figure
    usage_fee_microcredits: Figure
    electricity_microcredits: Figure
    earned_microcredits: Figure
    saved_microcredits: Figure
    pays_back_months: Figure


class ThirdPartyKey(BaseModel):
    """
    A third-party key of a project, without the key itself, which cannot be read again.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    project_id: Annotated[str, Field(title="Project Id")]
    type: Annotated[
        Literal["aws", "azure", "docker", "gcp", "git", "huggingface", "kaggle", "ngc", "wasabi"],
        Field(
            description="The types of third-party keys; a project has at most one key of each.",
            title="KeyType",
        ),
    ]
    hint: Annotated[str | None, Field(title="Hint")]
    set_by: Annotated[str, Field(title="Set By")]
    updated_at: Annotated[AwareDatetime, Field(title="Updated At")]


class ThirdPartyKeyPage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[ThirdPartyKey], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class ThirdPartyKeySetting(BaseModel):
    """
    A key of another service, as a text.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    type: Annotated[
        Literal["aws", "azure", "docker", "gcp", "git", "huggingface", "kaggle", "ngc", "wasabi"],
        Field(
            description="The types of third-party keys; a project has at most one key of each.",
            title="KeyType",
        ),
    ]
    value: Annotated[str, Field(max_length=16384, min_length=1, title="Value")]


class Transaction(BaseModel):
    """
    A ledger transaction: a movement of money whose postings add up to zero.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    business_key: Annotated[str, Field(title="Business Key")]
    kind: Annotated[str, Field(title="Kind")]
    account_id: Annotated[str, Field(title="Account Id")]
    project_id: Annotated[str | None, Field(title="Project Id")]
    provider_id: Annotated[str | None, Field(title="Provider Id")]
    region_id: Annotated[str | None, Field(title="Region Id")]
    job_id: Annotated[str | None, Field(title="Job Id")]
    device_id: Annotated[str | None, Field(title="Device Id")]
    reverses_id: Annotated[str | None, Field(title="Reverses Id")]
    description: Annotated[str, Field(title="Description")]
    details: Annotated[dict[str, Any], Field(title="Details")]
    at: Annotated[AwareDatetime, Field(title="At")]
    postings: Annotated[list[Posting], Field(title="Postings")]


class TransactionKind(
    RootModel[
        Literal[
            "credits",
            "usage-fee",
            "market-price",
            "earning",
            "payout",
            "federated-fee",
            "device-day",
            "cluster",
            "storage",
            "reversal",
        ]
    ]
):
    root: Annotated[
        Literal[
            "credits",
            "usage-fee",
            "market-price",
            "earning",
            "payout",
            "federated-fee",
            "device-day",
            "cluster",
            "storage",
            "reversal",
        ],
        Field(
            description="What a ledger transaction is for, as statements and totals name it.",
            title="TransactionKind",
        ),
    ]


class TransactionPage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[Transaction], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class Upload(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    sha256: Annotated[str, Field(title="Sha256")]
    size_bytes: Annotated[int, Field(title="Size Bytes")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]


class UploadCompletion(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    part_count: Annotated[int, Field(ge=1, le=65536, title="Part Count")]


class UploadPage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[Upload], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class PartCount(RootModel[int]):
    root: Annotated[int, Field(ge=0, le=65536, title="Part Count")]


class UploadSource(BaseModel):
    """
    An uncompressed tar that the client sends in parts.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    type: Annotated[Literal["upload"], Field(title="Type")]
    part_count: Annotated[PartCount | None, Field(title="Part Count")] = None


class UsageLine(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    begins_at: Annotated[AwareDatetime, Field(title="Begins At")]
    consumer_account_id: Annotated[str, Field(title="Consumer Account Id")]
    project_id: Annotated[str | None, Field(title="Project Id")]
    model_id: Annotated[str | None, Field(title="Model Id")]
    kind: Annotated[
        Literal["own", "rented", "public", "federated"],
        Field(description="How something of an account was used.", title="UsageKind"),
    ]
    job_count: Annotated[int, Field(title="Job Count")]
    seconds: Annotated[int, Field(title="Seconds")]
    gpu_seconds: Annotated[int, Field(title="Gpu Seconds")]
    charged_microcredits: Annotated[int, Field(title="Charged Microcredits")]
    federated_fee_microcredits: Annotated[int, Field(title="Federated Fee Microcredits")]


class User1(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    email: Annotated[str, Field(title="Email")]
    email_verified: Annotated[bool, Field(title="Email Verified")]
    role: Annotated[str, Field(title="Role")]
    is_invited: Annotated[bool, Field(title="Is Invited")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]


class UserChange(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    role: Annotated[Literal["owner", "member", "billing"], Field(title="Role")]


class UserCreation(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    email: Annotated[str, Field(max_length=254, title="Email")]
    role: Annotated[Literal["owner", "member", "billing"], Field(title="Role")] = "member"


class UserPage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[User1], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class VolumeHolder(BaseModel):
    """
    A job that has a volume now; others wait until its run has provably ended.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    job_id: Annotated[str | None, Field(title="Job Id")]
    access: Annotated[
        Literal["read", "write"],
        Field(
            description="The access of a job to a volume: one writer, or many readers.",
            title="VolumeAccess",
        ),
    ]


class VolumeReference(BaseModel):
    """
    A volume of the platform, and what the job does with it.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[
        str,
        Field(description="The id of the volume.", examples=["vol-01j"], title="Id"),
    ]
    access: Annotated[
        Literal["read", "write"],
        Field(
            description="`write`: the job is the only one that has the volume, and what it writes is stored while it runs and at its end. `read`: the job sees the volume as it was when the job began, and others read it too.",
            examples=["write"],
            title="VolumeAccess",
        ),
    ]


class Sha256(RootModel[str]):
    root: Annotated[str, Field(max_length=64, pattern="^[0-9a-f]{64}$", title="Sha256")]


class WebSource(BaseModel):
    """
    A file of a web server; a `.tar`, `.tar.gz`, `.tgz` or `.zip` is unpacked.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    type: Annotated[Literal["web"], Field(title="Type")]
    url: Annotated[str, Field(max_length=2000, pattern="^https?://[!-~]+$", title="Url")]
    sha256: Annotated[Sha256 | None, Field(title="Sha256")] = None
    unpack: Annotated[bool, Field(title="Unpack")] = True


class WorkerDataProgress(BaseModel):
    """
    How much of the data of one worker has come to its node, or of its output from there; or of
    an artifact that the job waits for, before it has nodes.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    job_id: Annotated[str, Field(title="Job Id")]
    artifact_id: Annotated[str | None, Field(title="Artifact Id")]
    worker: Annotated[int | None, Field(title="Worker")]
    node_id: Annotated[str | None, Field(title="Node Id")]
    node_name: Annotated[str | None, Field(title="Node Name")]
    is_output: Annotated[bool, Field(title="Is Output")]
    bytes_transferred: Annotated[int, Field(title="Bytes Transferred")]
    total_bytes: Annotated[int | None, Field(title="Total Bytes")]
    bytes_per_s: Annotated[int | None, Field(title="Bytes Per S")]
    left_s: Annotated[int | None, Field(title="Left S")]
    at: Annotated[AwareDatetime, Field(title="At")]


class Account(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    name: Annotated[str, Field(title="Name")]
    plan: Annotated[str, Field(title="Plan")]
    billing_account_id: Annotated[str | None, Field(title="Billing Account Id")]
    is_administrator: Annotated[bool, Field(title="Is Administrator")]
    wallet_address: Annotated[str | None, Field(title="Wallet Address")]
    wallets: Annotated[dict[str, str], Field(title="Wallets")]
    idle_workload: IdleWorkloadShown | None
    personal_project_id: Annotated[str, Field(title="Personal Project Id")]
    removed_at: Annotated[AwareDatetime | None, Field(title="Removed At")]
    balance_microcredits: Annotated[int, Field(title="Balance Microcredits")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]
    updated_at: Annotated[AwareDatetime, Field(title="Updated At")]


class AccountPage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[Account], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class Artifact(BaseModel):
    """
    A dataset, model, checkpoint or volume.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    name: Annotated[str, Field(title="Name")]
    status: Annotated[str, Field(title="Status")]
    status_reason: Annotated[str | None, Field(title="Status Reason")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]
    updated_at: Annotated[AwareDatetime, Field(title="Updated At")]
    workflow_id: Annotated[str, Field(title="Workflow Id")]
    project_id: Annotated[str, Field(title="Project Id")]
    source: Annotated[dict[str, Any], Field(title="Source")]
    content_sha256: Annotated[str | None, Field(title="Content Sha256")]
    size_bytes: Annotated[int | None, Field(title="Size Bytes")]
    unpacked_bytes: Annotated[int | None, Field(title="Unpacked Bytes")]
    file_count: Annotated[int | None, Field(title="File Count")]
    bytes_transferred: Annotated[int, Field(title="Bytes Transferred")]
    total_bytes: Annotated[int | None, Field(title="Total Bytes")]
    made_for_job_id: Annotated[str | None, Field(title="Made For Job Id")]
    job_ids: Annotated[list[str], Field(title="Job Ids")]
    job_count: Annotated[int, Field(title="Job Count")]
    holders: Annotated[list[VolumeHolder], Field(title="Holders")]
    holder_count: Annotated[int, Field(title="Holder Count")]
    written_at: Annotated[AwareDatetime | None, Field(title="Written At")]
    written_by: Annotated[str | None, Field(title="Written By")]


class ArtifactCreation(BaseModel):
    """
    A new dataset, model, checkpoint or volume.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    name: Annotated[str, Field(max_length=100, min_length=1, title="Name")]
    project_id: Annotated[ProjectId | None, Field(title="Project Id")] = None
    source: Annotated[
        EmptySource
        | UploadSource
        | WebSource
        | GitSource
        | JobSource
        | ArtifactSource
        | ObjectStoreSource
        | HuggingFaceSource
        | RegionalSource
        | GoogleStorageSource
        | AzureSource
        | KaggleSource,
        Field(discriminator="type", title="Source"),
    ]


class ArtifactPage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[Artifact], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class AuditVerification(BaseModel):
    """
    What the verification of all chains of audit entries has found.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    intact: Annotated[bool, Field(title="Intact")]
    chains: Annotated[int, Field(title="Chains")]
    entries: Annotated[int, Field(title="Entries")]
    unchained_entries: Annotated[int, Field(title="Unchained Entries")]
    newest_unchained_at: Annotated[AwareDatetime | None, Field(title="Newest Unchained At")]
    broken: Annotated[list[BrokenChain], Field(title="Broken")]


class BootDriveRequest(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    region_id: Annotated[str, Field(title="Region Id")]
    count: Annotated[int, Field(title="Count")]
    ship_to: Annotated[list[str] | None, Field(title="Ship To")]
    status: Annotated[
        Literal["requested", "approved", "refused", "withdrawn", "shipped", "received"],
        Field(
            description="The status of a boot-drive request.\n\nrequested → approved → shipped → received; or, of one that is requested still, refused or\nwithdrawn.",
            title="BootDriveRequestStatus",
        ),
    ]
    status_reason: Annotated[str | None, Field(title="Status Reason")]
    carrier: Annotated[str | None, Field(title="Carrier")]
    tracking: Annotated[str | None, Field(title="Tracking")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]
    updated_at: Annotated[AwareDatetime, Field(title="Updated At")]


class BootDriveRequestPage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[BootDriveRequest], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class BusyNode(BaseModel):
    """
    A node of the account, and how much of it jobs hold.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    node_id: Annotated[str, Field(title="Node Id")]
    name: Annotated[str, Field(title="Name")]
    status: Annotated[str, Field(title="Status")]
    worker_count: Annotated[int, Field(title="Worker Count")]
    cpu_count: Annotated[int, Field(title="Cpu Count")]
    reserved_cpu_count: Annotated[int, Field(title="Reserved Cpu Count")]
    memory_bytes: Annotated[int, Field(title="Memory Bytes")]
    reserved_memory_bytes: Annotated[int, Field(title="Reserved Memory Bytes")]
    gpu_count: Annotated[int, Field(title="Gpu Count")]
    held_gpu_count: Annotated[int, Field(title="Held Gpu Count")]
    gpus: Annotated[list[Gpu], Field(title="Gpus")]
    measured_at: Annotated[AwareDatetime | None, Field(title="Measured At")]


class Credential(BaseModel):
    """
    A credential of the account: where it is, and its last characters.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    kind: Annotated[str, Field(title="Kind")]
    field: Annotated[str, Field(title="Field")]
    reference: Annotated[str, Field(title="Reference")]
    source: Annotated[
        Literal["environment", "file", "store"],
        Field(description="The place from which a credential is read.", title="Source"),
    ]
    masked: Annotated[str, Field(title="Masked")]
    read_only: Annotated[bool, Field(title="Read Only")]
    provider_ids: Annotated[list[str], Field(title="Provider Ids")]
    updated_at: Annotated[AwareDatetime | None, Field(title="Updated At")]


class CredentialList(BaseModel):
    """
    All credentials of an account, those by kind and field first.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[Credential], Field(title="Items")]


class CredentialSetting(BaseModel):
    """
    A credential as the provider has given it; it is never shown again.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    value: Annotated[
        dict[str, Any] | str,
        Field(description="The key, as its text or as its JSON", title="Value"),
    ]


class DataProgressList(BaseModel):
    """
    What is on its way now. It is read from the transfers themselves, and is not stored.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[WorkerDataProgress], Field(title="Items")]


class Datastore(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    name: Annotated[str, Field(title="Name")]
    status: Annotated[str, Field(title="Status")]
    status_reason: Annotated[str | None, Field(title="Status Reason")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]
    updated_at: Annotated[AwareDatetime, Field(title="Updated At")]
    workflow_id: Annotated[str, Field(title="Workflow Id")]
    region_id: Annotated[str, Field(title="Region Id")]
    type: Annotated[Literal["nfs", "smb"], Field(title="DatastoreType")]
    address: Annotated[str, Field(title="Address")]
    root_path: Annotated[str, Field(title="Root Path")]
    user: Annotated[str | None, Field(title="User")]
    has_password: Annotated[bool, Field(title="Has Password")]
    way: Annotated[str | None, Field(title="Way")]


class DatastoreCreation(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    region_id: Annotated[str, Field(max_length=100, title="Region Id")]
    name: Annotated[str, Field(max_length=100, min_length=1, title="Name")]
    type: Annotated[Literal["nfs", "smb"], Field(title="DatastoreType")]
    address: Annotated[str, Field(max_length=300, title="Address")]
    root_path: Annotated[str, Field(max_length=1100, title="Root Path")]
    user: Annotated[User | None, Field(title="User")] = None
    password: Annotated[Password | None, Field(title="Password")] = None


class DatastorePage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[Datastore], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class Deployment(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    name: Annotated[str, Field(title="Name")]
    status: Annotated[str, Field(title="Status")]
    status_reason: Annotated[str | None, Field(title="Status Reason")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]
    updated_at: Annotated[AwareDatetime, Field(title="Updated At")]
    workflow_id: Annotated[str, Field(title="Workflow Id")]
    region_id: Annotated[str, Field(title="Region Id")]
    configuration_id: Annotated[str, Field(title="Configuration Id")]
    revision: Annotated[int, Field(title="Revision")]
    policy: DeploymentPolicy
    counts: DeploymentCounts
    deadline: Annotated[AwareDatetime | None, Field(title="Deadline")]
    requested_by: Annotated[str, Field(title="Requested By")]
    requested_by_name: Annotated[str, Field(title="Requested By Name")]


class DeploymentDevice(BaseModel):
    """
    One device of a deployment.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    device_id: Annotated[str, Field(title="Device Id")]
    name: Annotated[str, Field(title="Name")]
    status: Annotated[str, Field(title="Status")]
    state: Annotated[
        Literal["waiting", "asked", "running", "failed", "superseded", "left", "withdrawn"],
        Field(description="How far one device of a deployment is.", title="TargetState"),
    ]
    reason: Annotated[str | None, Field(title="Reason")]
    earlier_configuration_id: Annotated[str | None, Field(title="Earlier Configuration Id")]
    earlier_revision: Annotated[int | None, Field(title="Earlier Revision")]
    updated_at: Annotated[AwareDatetime, Field(title="Updated At")]


class DeploymentDevicePage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[DeploymentDevice], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class DeploymentPage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[Deployment], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class DeviceHardware(BaseModel):
    """
    The hardware of a device, as the inspection found it.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    hostname: Annotated[str, Field(title="Hostname")]
    os_name: Annotated[str, Field(title="Os Name")]
    kernel: Annotated[str, Field(title="Kernel")]
    python_version: Annotated[str, Field(title="Python Version")]
    cpu_count: Annotated[int, Field(title="Cpu Count")]
    core_count: Annotated[int | None, Field(title="Core Count")]
    cpu_model: Annotated[str, Field(title="Cpu Model")]
    memory_bytes: Annotated[int, Field(title="Memory Bytes")]
    free_disk_bytes: Annotated[int, Field(title="Free Disk Bytes")]
    disk_bytes: Annotated[int, Field(title="Disk Bytes")]
    disks: Annotated[list[NodeDisk], Field(title="Disks")]
    network_mbps: Annotated[int | None, Field(title="Network Mbps")]
    tpm: Annotated[bool, Field(title="Tpm")]
    is_root: Annotated[bool, Field(title="Is Root")]
    runtimes: Annotated[list[str], Field(title="Runtimes")]
    addresses: Annotated[list[str], Field(title="Addresses")]
    reboot_required: Annotated[bool, Field(title="Reboot Required")]
    jetson: DeviceJetson | None


class DeviceOutputBuffer(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    policy: Annotated[
        Literal["drop_oldest", "drop_newest", "drop_all"],
        Field(
            description="What a device drops of its output while the datastore does not take it.",
            title="OutputPolicy",
        ),
    ]
    limit_bytes: Annotated[int | None, Field(title="Limit Bytes")]


class DeviceRequested(BaseModel):
    """
    What was asked of a device last.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    revision: DeviceRevisionReference | None
    deployment_id: Annotated[str | None, Field(title="Deployment Id")]
    requested_by: Annotated[str, Field(title="Requested By")]
    requested_by_name: Annotated[str, Field(title="Requested By Name")]
    at: Annotated[AwareDatetime, Field(title="At")]
    followed: Annotated[bool, Field(title="Followed")]


class DeviceRevision(BaseModel):
    """
    A revision of a configuration, which never changes.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    configuration_id: Annotated[str, Field(title="Configuration Id")]
    revision: Annotated[int, Field(title="Revision")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]
    created_by: Annotated[str, Field(title="Created By")]
    created_by_name: Annotated[str, Field(title="Created By Name")]
    command: Annotated[str, Field(title="Command")]
    model_id: Annotated[str | None, Field(title="Model Id")]
    checkpoints: Annotated[list[str], Field(title="Checkpoints")]
    output: DeviceOutput | None
    output_buffer: DeviceOutputBuffer
    environment: DeviceEnvironmentShown
    health: DeviceHealthCheck
    disk_size_gb: Annotated[int, Field(title="Disk Size Gb")]


class DeviceRevisionDifference(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    field: Annotated[str, Field(title="Field")]
    kind: Annotated[Literal["added", "removed", "changed"], Field(title="DifferenceKind")]
    earlier: Any
    later: Any


class Event(BaseModel):
    """
    An event: one entry in the history of a resource.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    position: Annotated[int, Field(title="Position")]
    account_id: Annotated[str, Field(title="Account Id")]
    resource_id: Annotated[str, Field(title="Resource Id")]
    sequence: Annotated[int, Field(title="Sequence")]
    type: Annotated[str, Field(title="Type")]
    message: Annotated[str, Field(title="Message")]
    details: Annotated[dict[str, Any], Field(title="Details")]
    at: Annotated[AwareDatetime, Field(title="At")]


class EventPage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[Event], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class FederatedJob(BaseModel):
    """
    A federated job; `account_id` is the creator's, which owns the model.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    name: Annotated[str, Field(title="Name")]
    status: Annotated[str, Field(title="Status")]
    status_reason: Annotated[str | None, Field(title="Status Reason")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]
    updated_at: Annotated[AwareDatetime, Field(title="Updated At")]
    workflow_id: Annotated[str, Field(title="Workflow Id")]
    role: Annotated[
        Literal["creator", "consumer", "both"],
        Field(
            description="What the reader's account is in a federated job.",
            title="FederatedRole",
        ),
    ]
    consumer_account_id: Annotated[str, Field(title="Consumer Account Id")]
    project_id: Annotated[str, Field(title="Project Id")]
    model_id: Annotated[str, Field(title="Model Id")]
    type: Annotated[str, Field(title="Type")]
    creator_user_id: Annotated[str, Field(title="Creator User Id")]
    creator_name: Annotated[str, Field(title="Creator Name")]
    job_id: Annotated[str | None, Field(title="Job Id")]
    job_status: Annotated[str | None, Field(title="Job Status")]
    egress: Annotated[list[str], Field(title="Egress")]
    logs: Literal["none", "exit_only", "all"] | None
    needs_attestation: Annotated[bool, Field(title="Needs Attestation")]
    worker_seconds: Annotated[int, Field(title="Worker Seconds")]
    federated_fee_microcredits: Annotated[int, Field(title="Federated Fee Microcredits")]


class FederatedJobPage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[FederatedJob], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class FieldError(BaseModel):
    """
    One mistake in a request: the field, the rule that it breaks, and the given value.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    field: Annotated[str, Field(title="Field")]
    rule: Annotated[str, Field(title="Rule")]
    value: Any


class HostnameEvent(BaseModel):
    """
    What a node has said of the hostname while a job held the reservation.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    job_id: Annotated[str, Field(title="Job Id")]
    state: Annotated[
        Literal["published", "conflict", "not-published"],
        Field(
            description="What a node says of the hostname that it publishes for a run.",
            title="HostnameState",
        ),
    ]
    message: Annotated[str, Field(title="Message")]
    at: Annotated[AwareDatetime, Field(title="At")]


class JobArray(BaseModel):
    """
    The jobs that one submission with `array` has made, in the order of their numbers.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    name: Annotated[str, Field(title="Name")]
    project_id: Annotated[str, Field(title="Project Id")]
    jobs: Annotated[list[JobOfArray], Field(title="Jobs")]
    warnings: Annotated[list[str], Field(title="Warnings")]


class JobCharge(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    transaction_id: Annotated[str, Field(title="Transaction Id")]
    kind: Annotated[str, Field(title="Kind")]
    description: Annotated[str, Field(title="Description")]
    amount_microcredits: Annotated[int, Field(title="Amount Microcredits")]
    at: Annotated[AwareDatetime, Field(title="At")]
    details: Annotated[dict[str, Any], Field(title="Details")]


class JobCharges(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    job_id: Annotated[str, Field(title="Job Id")]
    charged_microcredits: Annotated[int, Field(title="Charged Microcredits")]
    unposted_microcredits: Annotated[int, Field(title="Unposted Microcredits")]
    microcredits_per_hour: Annotated[int | None, Field(title="Microcredits Per Hour")]
    gpu_seconds: Annotated[int, Field(title="Gpu Seconds")]
    rates: Annotated[dict[str, Any] | None, Field(title="Rates")]
    charges: Annotated[list[JobCharge], Field(title="Charges")]


class JobMeasurements(BaseModel):
    """
    The runs of a job that concern whoever asks, oldest first.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    job_id: Annotated[str, Field(title="Job Id")]
    runs: Annotated[list[RunMeasurement], Field(title="Runs")]
    is_whole: Annotated[bool, Field(title="Is Whole")]


class JobPlacement(BaseModel):
    """
    The placement of a job: where its workers were placed, and which offers were refused.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    job_id: Annotated[str, Field(title="Job Id")]
    status: Annotated[str, Field(title="Status")]
    attempt: Annotated[int, Field(title="Attempt")]
    assignments: Annotated[list[JobAssignment], Field(title="Assignments")]
    refusals: Annotated[list[PlacementRefusal], Field(title="Refusals")]


class JobPreview(BaseModel):
    """
    Where a job would go now that is not submitted; its document breaks no rule.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    placeable: Annotated[bool, Field(title="Placeable")]
    offers: Annotated[list[Offer], Field(title="Offers")]
    refusals: Annotated[list[PlacementRefusal], Field(title="Refusals")]
    name: Annotated[str, Field(title="Name")]
    project_id: Annotated[str, Field(title="Project Id")]
    worker_count: Annotated[int, Field(title="Worker Count")]


class Lease(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    name: Annotated[str, Field(title="Name")]
    status: Annotated[str, Field(title="Status")]
    status_reason: Annotated[str | None, Field(title="Status Reason")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]
    updated_at: Annotated[AwareDatetime, Field(title="Updated At")]
    workflow_id: Annotated[str, Field(title="Workflow Id")]
    provider_id: Annotated[str, Field(title="Provider Id")]
    provider_kind: Annotated[str, Field(title="Provider Kind")]
    region_id: Annotated[str, Field(title="Region Id")]
    holder_id: Annotated[str, Field(title="Holder Id")]
    offer: LeasedOffer | None
    host: Annotated[str | None, Field(title="Host")]
    microcredits_per_hour: Annotated[int | None, Field(title="Microcredits Per Hour")]
    price_is_estimate: Annotated[bool, Field(title="Price Is Estimate")]
    deadline: Annotated[AwareDatetime, Field(title="Deadline")]
    began_at: Annotated[AwareDatetime | None, Field(title="Began At")]
    ended_at: Annotated[AwareDatetime | None, Field(title="Ended At")]
    seconds: Annotated[int, Field(title="Seconds")]
    cost_microcredits: Annotated[int, Field(title="Cost Microcredits")]


class LeasePage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[Lease], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class LedgerAudit(BaseModel):
    """
    What an audit of the whole ledger has found; nothing is changed by it.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    is_clean: Annotated[bool, Field(title="Is Clean")]
    at: Annotated[AwareDatetime, Field(title="At")]
    transaction_count: Annotated[int, Field(title="Transaction Count")]
    posting_count: Annotated[int, Field(title="Posting Count")]
    ledger_account_count: Annotated[int, Field(title="Ledger Account Count")]
    meter_count: Annotated[int, Field(title="Meter Count")]
    checks: Annotated[list[LedgerCheck], Field(title="Checks")]
    differences: Annotated[list[LedgerDifference], Field(title="Differences")]


class Memberships(BaseModel):
    """
    The accounts and the projects of others that the caller's user belongs to.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    accounts: Annotated[list[AccountMembership], Field(title="Accounts")]
    projects: Annotated[list[ProjectMembership], Field(title="Projects")]


class Node(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    name: Annotated[str, Field(title="Name")]
    status: Annotated[str, Field(title="Status")]
    status_reason: Annotated[str | None, Field(title="Status Reason")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]
    updated_at: Annotated[AwareDatetime, Field(title="Updated At")]
    workflow_id: Annotated[str, Field(title="Workflow Id")]
    region_id: Annotated[str, Field(title="Region Id")]
    minion_id: Annotated[str, Field(title="Minion Id")]
    leased: Annotated[bool, Field(title="Leased")]
    type: Annotated[str, Field(title="Type")]
    services: Annotated[list[str], Field(title="Services")]
    fills_from: Annotated[str | None, Field(title="Fills From")]
    upnp: Annotated[bool, Field(title="Upnp")]
    mining: Annotated[bool, Field(title="Mining")]
    idle_workload: NodeIdleWorkload | None
    address: Annotated[str | None, Field(title="Address")]
    port: Annotated[int, Field(title="Port")]
    user: Annotated[str, Field(title="User")]
    gpu_type: Annotated[str | None, Field(title="Gpu Type")]
    gpu_count: Annotated[int, Field(title="Gpu Count")]
    cpu_count: Annotated[int, Field(title="Cpu Count")]
    memory_bytes: Annotated[int, Field(title="Memory Bytes")]
    reserved_cpu_count: Annotated[int, Field(title="Reserved Cpu Count")]
    reserved_memory_bytes: Annotated[int, Field(title="Reserved Memory Bytes")]
    hardware: NodeHardware | None
    requirements: Annotated[list[NodeRequirement], Field(title="Requirements")]
    preparation: NodePreparation | None
    gpus: Annotated[list[NodeGpu], Field(title="Gpus")]
    job_ids: Annotated[list[str], Field(title="Job Ids")]
    leaving_allocations: Annotated[list[LeavingAllocation], Field(title="Leaving Allocations")]


class NodePage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[Node], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class OfferList(BaseModel):
    """
    The offers and refusals of a planning round for a job that is not submitted.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    placeable: Annotated[bool, Field(title="Placeable")]
    offers: Annotated[list[Offer], Field(title="Offers")]
    refusals: Annotated[list[PlacementRefusal], Field(title="Refusals")]


class OutputBufferChange(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    policy: Literal["drop_oldest", "drop_newest", "drop_all"] | None = None
    limit_bytes: Annotated[LimitBytes | None, Field(title="Limit Bytes")] = None


class OutputBufferCreation(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    policy: Annotated[
        Literal["drop_oldest", "drop_newest", "drop_all"],
        Field(
            description="What a device drops of its output while the datastore does not take it.",
            title="OutputPolicy",
        ),
    ] = "drop_oldest"
    limit_bytes: Annotated[LimitBytes | None, Field(title="Limit Bytes")] = None


class ProblemDetails(BaseModel):
    """
    Problem details: every answer that is not a success (RFC 9457); `code` is stable.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    type: Annotated[str, Field(title="Type")]
    title: Annotated[str, Field(title="Title")]
    status: Annotated[int, Field(title="Status")]
    detail: Annotated[str, Field(title="Detail")]
    code: Annotated[str, Field(title="Code")]
    errors: Annotated[list[FieldError], Field(title="Errors")]


class Provider(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    name: Annotated[str, Field(title="Name")]
    status: Annotated[str, Field(title="Status")]
    status_reason: Annotated[str | None, Field(title="Status Reason")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]
    updated_at: Annotated[AwareDatetime, Field(title="Updated At")]
    workflow_id: Annotated[str, Field(title="Workflow Id")]
    kind: Annotated[str, Field(title="Kind")]
    payment_mode: Annotated[str, Field(title="Payment Mode")]
    preferred_credits_microcredits: Annotated[
        int | None, Field(title="Preferred Credits Microcredits")
    ]
    preferred_credits_left_microcredits: Annotated[
        int | None, Field(title="Preferred Credits Left Microcredits")
    ]
    fee_waived: Annotated[bool, Field(title="Fee Waived")]
    credentials: ProviderCredentials | None
    checks: Annotated[list[ProviderCheck], Field(title="Checks")]
    resources: Annotated[list[ProviderResource], Field(title="Resources")]
    reconciled_at: Annotated[AwareDatetime | None, Field(title="Reconciled At")]
    endpoint: ProviderEndpoint | None


class ProviderCreation(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    kind: Annotated[
        Literal["physical", "gcp", "runpod", "vastai", "colab", "local"],
        Field(title="ProviderKind"),
    ]
    name: Annotated[Name | None, Field(title="Name")] = None
    payment_mode: Annotated[Literal["credits", "stripe"], Field(title="Payment Mode")] = "credits"
    credentials: Annotated[dict[str, Any] | str | None, Field(title="Credentials")] = None
    preferred_credits_microcredits: Annotated[
        PreferredCreditsMicrocredits | None,
        Field(title="Preferred Credits Microcredits"),
    ] = None
    waive_usage_fee: Annotated[bool, Field(title="Waive Usage Fee")] = False
    accept_terms: Annotated[bool, Field(title="Accept Terms")] = False


class ProviderPage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[Provider], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class QuotaList(BaseModel):
    """
    The quotas as the cloud gives them now; they are not stored.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    provider_id: Annotated[str, Field(title="Provider Id")]
    cloud_region: Annotated[str, Field(title="Cloud Region")]
    read_at: Annotated[AwareDatetime, Field(title="Read At")]
    raise_at: Annotated[str, Field(title="Raise At")]
    runnable: Annotated[list[RunnableJobs], Field(title="Runnable")]
    refusal: Annotated[str | None, Field(title="Refusal")]
    quotas: Annotated[list[Quota], Field(title="Quotas")]


class Reservation(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    region_id: Annotated[str, Field(title="Region Id")]
    name: Annotated[str, Field(title="Name")]
    type: Annotated[Literal["port"], Field(title="ReservationType")]
    hostname: Annotated[str, Field(title="Hostname")]
    published_name: Annotated[str, Field(title="Published Name")]
    port: Annotated[int, Field(title="Port")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]
    holder: ReservationHolder | None


class ReservationCreation(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    region_id: Annotated[str, Field(max_length=100, title="Region Id")]
    name: Annotated[str, Field(max_length=100, min_length=1, title="Name")]
    type: Annotated[Literal["port"], Field(title="ReservationType")] = "port"
    hostname: Annotated[str, Field(max_length=63, title="Hostname")]
    port: Annotated[int, Field(ge=1024, le=65535, title="Port")]


class ReservationPage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[Reservation], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class Statement(BaseModel):
    """
    The movements of an account's credits from `begins_at` until before `ends_at`.

    With filters, those that are about these subjects, with the sum of such earlier movements as the
    opening. `opening`, `closing` and `totals` are of the whole period, `lines` of one page.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    account_id: Annotated[str, Field(title="Account Id")]
    begins_at: Annotated[AwareDatetime, Field(title="Begins At")]
    ends_at: Annotated[AwareDatetime, Field(title="Ends At")]
    opening_microcredits: Annotated[int, Field(title="Opening Microcredits")]
    closing_microcredits: Annotated[int, Field(title="Closing Microcredits")]
    totals_microcredits: Annotated[dict[str, int], Field(title="Totals Microcredits")]
    lines: Annotated[list[StatementLine], Field(title="Lines")]
    next: Annotated[str | None, Field(title="Next")]


class SubmittedData(BaseModel):
    """
    What the commands read and where their output goes.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    datasets: Annotated[
        list[str],
        Field(
            description="Datasets of the job's project by their ids, at most 64; not for inference. Each is a folder of its name in BASELOAD_DATASETS, which cannot be written to.",
            examples=[["dat-01j"]],
            title="Datasets",
        ),
    ] = []
    model: Annotated[
        JobModelReference | None,
        Field(
            description="The model to work with, of the job's project; BASELOAD_MODEL is its folder, which cannot be written to.",
            examples=[{"id": "mod-01j"}],
        ),
    ] = None
    checkpoints: Annotated[
        list[str],
        Field(
            description="Checkpoints of the job's project by their ids, at most 64. Each is a folder of its name in BASELOAD_CHECKPOINTS, which cannot be written to.",
            examples=[["chk-01j"]],
            title="Checkpoints",
        ),
    ] = []
    volumes: Annotated[
        list[VolumeReference],
        Field(
            description="Volumes of the job's project, at most 16; for notebooks and endpoints. Each is a folder of its name in BASELOAD_VOLUMES. A job waits while another one writes to a volume that it names, and one that writes waits for the readers as well.",
            examples=[[{"access": "write", "id": "vol-01j"}]],
            title="Volumes",
            validate_default=True,
        ),
    ] = []
    input: Annotated[
        InputSource | None,
        Field(
            description="The files that the command finds in BASELOAD_INPUT.",
            examples=[{"type": "local", "upload_id": "upl-01j"}],
        ),
    ] = None
    scratch: Annotated[
        DataSource | None,
        Field(
            description="A writable folder for the life of each run, in BASELOAD_SCRATCH: one of its own below the folder of a datastore (`type: regional`), which goes with the run. Where the machine cannot mount the datastore, it is on the machine's own disk (`resources.disk_size_gb`).",
            examples=[{"datastore_id": "dst-01j", "path": "tmp", "type": "regional"}],
        ),
    ] = None
    output: Annotated[
        OutputDestination | None,
        Field(
            description="The destination of output. If the field is left out, output is stored (`type: local`); null: that of training and inference is not. The output of notebooks and endpoints always is: on the platform, or on a datastore (`type: regional`).",
            examples=[{"type": "local"}],
        ),
    ] = None


class TcoComparison(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    plan: Annotated[str, Field(title="Plan")]
    microcredits_per_gpu_hour: Figure | None
    months: Annotated[list[TcoMonth], Field(title="Months")]


class TcoTotal(BaseModel):
    """
    All nodes together; a plan is there when each of the nodes has a price for it.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    purchase_price_microcredits: Figure
    gpu_hours: Figure
    comparisons: Annotated[list[TcoComparison], Field(title="Comparisons")]
    without_price: Annotated[list[str], Field(title="Without Price")]


class Usage(BaseModel):
    """
    Who used the machines, the projects and the models of an account.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    account_id: Annotated[str, Field(title="Account Id")]
    begins_at: Annotated[AwareDatetime, Field(title="Begins At")]
    ends_at: Annotated[AwareDatetime, Field(title="Ends At")]
    by: Annotated[
        Literal["total", "day", "month"],
        Field(description="How a period is cut; `total`: not at all.", title="Cut"),
    ]
    items: Annotated[list[UsageLine], Field(title="Items")]
    is_whole: Annotated[bool, Field(title="Is Whole")]


class Utilisation(BaseModel):
    """
    What runs now. Nodes measure it every ten seconds; it decides nothing and is not stored.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    at: Annotated[AwareDatetime, Field(title="At")]
    microcredits_per_hour: Annotated[int, Field(title="Microcredits Per Hour")]
    workers: Annotated[list[RunningWorker], Field(title="Workers")]
    nodes: Annotated[list[BusyNode], Field(title="Nodes")]
    is_whole: Annotated[bool, Field(title="Is Whole")]


class DescribedDeviceConfiguration(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    region_id: Annotated[str, Field(title="Region Id")]
    project_id: Annotated[str, Field(title="Project Id")]
    name: Annotated[str, Field(title="Name")]
    latest_revision: Annotated[int, Field(title="Latest Revision")]
    device_count: Annotated[int, Field(title="Device Count")]
    deployed_count: Annotated[int, Field(title="Deployed Count")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]
    updated_at: Annotated[AwareDatetime, Field(title="Updated At")]
    latest: DeviceRevision
    revisions: Annotated[list[DeviceRevisionSummary], Field(title="Revisions")]


class DescribedReservation(BaseModel):
    """
    A reservation, with what was said of its hostname.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    region_id: Annotated[str, Field(title="Region Id")]
    name: Annotated[str, Field(title="Name")]
    type: Annotated[Literal["port"], Field(title="ReservationType")]
    hostname: Annotated[str, Field(title="Hostname")]
    published_name: Annotated[str, Field(title="Published Name")]
    port: Annotated[int, Field(title="Port")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]
    holder: ReservationHolder | None
    events: Annotated[list[HostnameEvent], Field(title="Events")]


class Device(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    name: Annotated[str, Field(title="Name")]
    status: Annotated[str, Field(title="Status")]
    status_reason: Annotated[str | None, Field(title="Status Reason")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]
    updated_at: Annotated[AwareDatetime, Field(title="Updated At")]
    workflow_id: Annotated[str, Field(title="Workflow Id")]
    region_id: Annotated[str, Field(title="Region Id")]
    minion_id: Annotated[str, Field(title="Minion Id")]
    upnp: Annotated[bool, Field(title="Upnp")]
    address: Annotated[str | None, Field(title="Address")]
    port: Annotated[int, Field(title="Port")]
    user: Annotated[str, Field(title="User")]
    model: Annotated[str | None, Field(title="Model")]
    hardware: DeviceHardware | None
    requirements: Annotated[list[NodeRequirement], Field(title="Requirements")]
    preparation: NodePreparation | None
    configuration_id: Annotated[str | None, Field(title="Configuration Id")]
    wanted: DeviceRevisionReference | None
    requested: DeviceRequested | None
    running: DeviceRevisionReference | None
    is_deployed: Annotated[bool, Field(title="Is Deployed")]
    deployed_at: Annotated[AwareDatetime | None, Field(title="Deployed At")]
    deployed_by: Annotated[str | None, Field(title="Deployed By")]
    deployed_by_name: Annotated[str | None, Field(title="Deployed By Name")]
    inference_status: Annotated[
        Literal["stopped", "deploying", "running", "failed"],
        Field(
            description="What the inference of a device does, as the device has said it last.",
            title="InferenceStatus",
        ),
    ]
    inference_reason: Annotated[str | None, Field(title="Inference Reason")]
    exit_code: Annotated[int | None, Field(title="Exit Code")]
    output_backlog: DeviceOutputBacklog | None
    removed_at: Annotated[AwareDatetime | None, Field(title="Removed At")]


class DeviceConfigurationChange(BaseModel):
    """
    The fields of the next revision that differ from the latest one; null: as by default.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    command: Annotated[str | None, Field(title="Command")] = None
    model: ModelReference | None = None
    checkpoints: Annotated[list[str] | None, Field(title="Checkpoints")] = None
    output: DataSource | None = None
    output_buffer: OutputBufferChange | None = None
    environment: DeviceEnvironmentChange | None = None
    health: HealthCheckChange | None = None
    disk_size_gb: Annotated[DiskSizeGb | None, Field(title="Disk Size Gb")] = None


class DeviceConfigurationCreation(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    command: Annotated[
        str,
        Field(
            description="What runs for ever, in the folder of the model. It starts again when the device restarts, and not when it exits by itself; at most 65536 characters.",
            examples=["python serve.py"],
            title="Command",
        ),
    ]
    model: Annotated[
        ModelReference | None,
        Field(
            description="The model, of the configuration's project; BASELOAD_MODEL is its folder.",
            examples=[{"id": "mod-01j"}],
        ),
    ] = None
    checkpoints: Annotated[
        list[str],
        Field(
            description="Checkpoints of the project by their ids, at most 64; each is a folder of its name in BASELOAD_CHECKPOINTS.",
            examples=[["chk-01j"]],
            title="Checkpoints",
        ),
    ] = []
    output: Annotated[
        DataSource | None,
        Field(
            description="The folder of a datastore of the region that BASELOAD_OUTPUT stands for; without this field what the command writes there stays on the device.",
            examples=[{"datastore_id": "dst-01j", "path": "detections", "type": "regional"}],
        ),
    ] = None
    output_buffer: Annotated[
        OutputBufferCreation | None,
        Field(
            description="What the device keeps of its output while the datastore does not take it: that follows later, and what is dropped is counted."
        ),
    ] = None
    environment: DeviceEnvironment | None = None
    health: Annotated[
        HealthCheckCreation | None,
        Field(
            description="What must be so before a revision counts as running; else the one before runs again."
        ),
    ] = None
    disk_size_gb: Annotated[
        int,
        Field(
            description="How much disk of the device the files of the command may take, in GB (10^9 bytes).",
            examples=[20],
            ge=1,
            le=2000,
            title="Disk Size Gb",
        ),
    ] = 10
    name: Annotated[
        str,
        Field(
            description="The name, which no other configuration of the region has.",
            max_length=100,
            min_length=1,
            title="Name",
        ),
    ]
    region_id: Annotated[
        str,
        Field(
            description="The region whose devices may have it.",
            max_length=100,
            title="Region Id",
        ),
    ]
    project_id: Annotated[
        ProjectId1 | None,
        Field(
            description="The project whose model, checkpoints, secrets and keys it names; by default the account's own.",
            title="Project Id",
        ),
    ] = None


class DevicePage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[Device], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class DeviceRevisionDiff(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    configuration_id: Annotated[str, Field(title="Configuration Id")]
    earlier: Annotated[int, Field(title="Earlier")]
    later: Annotated[int, Field(title="Later")]
    differences: Annotated[list[DeviceRevisionDifference], Field(title="Differences")]


class Job(BaseModel):
    """
    A job. The values of its variables are masked.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    id: Annotated[str, Field(title="Id")]
    account_id: Annotated[str, Field(title="Account Id")]
    name: Annotated[str, Field(title="Name")]
    status: Annotated[str, Field(title="Status")]
    status_reason: Annotated[str | None, Field(title="Status Reason")]
    created_at: Annotated[AwareDatetime, Field(title="Created At")]
    updated_at: Annotated[AwareDatetime, Field(title="Updated At")]
    workflow_id: Annotated[str, Field(title="Workflow Id")]
    status_label: Annotated[str, Field(title="Status Label")]
    type: Annotated[str, Field(title="Type")]
    project_id: Annotated[str, Field(title="Project Id")]
    creator_user_id: Annotated[str | None, Field(title="Creator User Id")]
    creator_account_id: Annotated[str | None, Field(title="Creator Account Id")]
    priority: Annotated[int, Field(title="Priority")]
    attempt: Annotated[int, Field(title="Attempt")]
    retries: Annotated[int, Field(title="Retries")]
    retry_at: Annotated[AwareDatetime | None, Field(title="Retry At")]
    resources: SubmittedResources
    environment: SubmittedEnvironment
    code: SubmittedCode | None
    data: SubmittedData
    input_id: Annotated[str | None, Field(title="Input Id")]
    delivery_status: Literal["pending", "delivered", "failed"] | None
    commands: Annotated[list[SubmittedWorker], Field(title="Commands")]
    placement: SubmittedPlacement
    safety: SubmittedSafety
    port: Annotated[int | None, Field(title="Port")]
    labels: Annotated[dict[str, str], Field(title="Labels")]
    reservation_id: Annotated[str | None, Field(title="Reservation Id")]
    workers: Annotated[list[JobWorker], Field(title="Workers")]
    placement_refusals: Annotated[list[PlacementRefusal], Field(title="Placement Refusals")]
    started_at: Annotated[AwareDatetime | None, Field(title="Started At")]
    elapsed_s: Annotated[int | None, Field(title="Elapsed S")]
    gpu_seconds: Annotated[int, Field(title="Gpu Seconds")]
    charged_microcredits: Annotated[int, Field(title="Charged Microcredits")]
    unposted_microcredits: Annotated[int, Field(title="Unposted Microcredits")]
    microcredits_per_hour: Annotated[int | None, Field(title="Microcredits Per Hour")]
    machine_cost_microcredits: Annotated[int, Field(title="Machine Cost Microcredits")]
    machine_microcredits_per_hour: Annotated[
        int | None, Field(title="Machine Microcredits Per Hour")
    ]
    machine_cost_is_estimate: Annotated[bool, Field(title="Machine Cost Is Estimate")]
    output_bytes: Annotated[int | None, Field(title="Output Bytes")]
    warnings: Annotated[list[str], Field(title="Warnings")]


class JobPage(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    items: Annotated[list[Job], Field(title="Items")]
    next: Annotated[str | None, Field(title="Next")]


class JobSubmission(BaseModel):
    """
    A job to submit.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    name: Annotated[
        str,
        Field(
            description="The job's name, 1 to 100 printable characters. Several jobs may have the same.",
            examples=["digits"],
            title="Name",
        ),
    ]
    type: Annotated[
        Literal["notebook", "training", "inference", "endpoint"],
        Field(
            description="`training`: commands that end, on one or more machines. `inference`: one command that ends. `notebook`, `endpoint`: one command that listens on `port` until it is stopped, and that can be started again with its files.",
            examples=["training"],
            title="JobType",
        ),
    ]
    project_id: Annotated[
        str | None,
        Field(
            description="The project that the job belongs to, whose account pays; by default the account's own.",
            examples=["prj-01j"],
            title="Project Id",
        ),
    ] = None
    resources: Annotated[
        SubmittedResources | None,
        Field(
            description="What each worker needs: GPUs, CPUs, memory, disk, and the highest price.",
            examples=[{"gpus": "A100:4"}],
        ),
    ] = None
    environment: Annotated[
        SubmittedEnvironment | None,
        Field(examples=[{"python_packages": ["scikit-learn"]}]),
    ] = None
    code: Annotated[
        SubmittedCode | None,
        Field(
            description="The code, in a copy of which each command begins; by default an empty folder.",
            examples=[{"upload_id": "upl-01j"}],
        ),
    ] = None
    data: Annotated[
        SubmittedData | None,
        Field(
            description="What the commands read, and where their output goes.",
            examples=[{"output": None}],
        ),
    ] = None
    workers: Annotated[
        list[SubmittedWorker],
        Field(
            description="The commands, each on a machine or a part of one, all at the same time: 1 to 256 for training, one for other types.",
            examples=[[{"command": "python train.py"}]],
            title="Workers",
        ),
    ]
    placement: Annotated[
        SubmittedPlacement | None,
        Field(
            description="On which machines the job may run; by default on all that the account may use.",
            examples=[{"spot": "never"}],
        ),
    ] = None
    safety: Annotated[SubmittedSafety | None, Field(examples=[{"idle_timeout_s": 3600}])] = None
    port: Annotated[
        int | None,
        Field(
            description="The port on which a notebook or endpoint listens, 1024 to 65535; these types need it, or a reservation, whose port it then is. The command finds the port that it has in BASELOAD_PORT.",
            examples=[8888],
            title="Port",
        ),
    ] = None
    reservation_id: Annotated[
        str | None,
        Field(
            description="A reservation of the project's account (`baseload reservation ls`), for a job with one worker. The job runs in its region and listens on its port, and `HOSTNAME.local` leads to its machine on the network there. One job at a time holds it; others wait.",
            examples=["rsv-01j"],
            title="Reservation Id",
        ),
    ] = None
    priority: Annotated[
        int,
        Field(
            description="From 1, placed first, to 5, placed last, among the jobs of its account.",
            examples=[1],
            title="Priority",
        ),
    ] = 3
    labels: Annotated[
        dict[str, str | float | bool] | None,
        Field(
            description="Up to 16 keys with values of your own, by which `baseload ps --label team=vision` finds the job again. They are no secrets: all who see the job see them.",
            examples=[{"run": "7", "team": "vision"}],
            max_length=16,
            title="Labels",
        ),
    ] = None
    array: Annotated[
        int | list[dict[str, str | float | bool]] | None,
        Field(
            description="Makes several jobs of one submission, at most 1000: their number, or for each the variables that differ. They are named `NAME-0`, `NAME-1` and so on, and each finds its number in BASELOAD_ARRAY_INDEX and their count in BASELOAD_ARRAY_SIZE. By default one job is made.",
            examples=[[{"LR": "0.1"}, {"LR": "0.01"}], 10],
            title="Array",
        ),
    ] = None


class NodeTco(BaseModel):
    model_config = ConfigDict(
        extra="allow",
    )
    node_id: Annotated[str, Field(title="Node Id")]
    name: Annotated[str, Field(title="Name")]
    gpu_type: Annotated[str, Field(title="Gpu Type")]
    gpu_count: Annotated[int, Field(title="Gpu Count")]
    begins_at: Annotated[AwareDatetime, Field(title="Begins At")]
    purchase_price_microcredits: Figure
    months_of_use: Figure
    power_w: Figure
    electricity_microcredits_per_kwh: Figure
    gpu_hours: Figure
    utilisation: Figure
    own_microcredits_per_gpu_hour: Figure
    comparisons: Annotated[list[TcoComparison], Field(title="Comparisons")]


class Tco(BaseModel):
    """
    The total cost of owning the account's own nodes, against renting the same GPU-hours.
    """

    model_config = ConfigDict(
        extra="allow",
    )
    account_id: Annotated[str, Field(title="Account Id")]
    begins_at: Annotated[AwareDatetime, Field(title="Begins At")]
    ends_at: Annotated[AwareDatetime, Field(title="Ends At")]
    hours_per_month: Annotated[int, Field(title="Hours Per Month")]
    nodes: Annotated[list[NodeTco], Field(title="Nodes")]
    total: TcoTotal | None
    left_out: Annotated[list[NodeLeftOut], Field(title="Left Out")]
