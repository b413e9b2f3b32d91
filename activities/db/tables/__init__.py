"""All tables, one module for each noun. Only `record` writes the steps of lifecycle rows.

Money is in integer microcredits, instants are aware and in UTC, ids are prefixed and time-ordered.
"""

from activities.db.tables.accounts import (
    Account,
    AccountMember,
    ApiKey,
    Invitation,
    Project,
    ProjectMember,
    StoredSecret,
    ThirdPartyKey,
    User,
)
from activities.db.tables.artifacts import (
    ARTIFACT_TABLES,
    ArtifactPart,
    ArtifactRow,
    ArtifactTransfer,
    ArtifactUse,
    Checkpoint,
    Dataset,
    Model,
    Volume,
    VolumeHold,
    place_of_content,
    table_of_artifact,
)
from activities.db.tables.boot_drive_requests import BootDriveRequest
from activities.db.tables.columns import LifecycleRow, RemovableRow
from activities.db.tables.datastores import Datastore, JobDatastore
from activities.db.tables.devices import (
    DeploymentTarget,
    Device,
    DeviceConfiguration,
    DeviceDeployment,
    DeviceRevision,
    DeviceRevisionUse,
)
from activities.db.tables.events import AuditChain, AuditRow, EventRow
from activities.db.tables.federation import FederatedJob
from activities.db.tables.installation import KeyFingerprint, SchemaCompatibility, UsedLink
from activities.db.tables.jobs import (
    Allocation,
    DemandRefusalsRow,
    GpuAllocation,
    Job,
    JobLabel,
    Upload,
)
from activities.db.tables.leases import Lease
from activities.db.tables.ledger import (
    LedgerAccount,
    LedgerDaySum,
    LedgerPosting,
    LedgerTransaction,
    UsageMeter,
)
from activities.db.tables.nodes import JoinToken, Node, NodeAnnouncement
from activities.db.tables.outbox import IdempotencyKey, OutboxRow
from activities.db.tables.providers import (
    CloudPriceRow,
    ColabEndpointRow,
    Provider,
    ProviderCallSlot,
    Region,
    RentalOfferRow,
    ShortageRow,
)
from activities.db.tables.reservations import JobReservation, Reservation

__all__ = [
    "ARTIFACT_TABLES",
    "Account",
    "AccountMember",
    "Allocation",
    "ApiKey",
    "ArtifactPart",
    "ArtifactRow",
    "ArtifactTransfer",
    "ArtifactUse",
    "AuditChain",
    "AuditRow",
    "BootDriveRequest",
    "Checkpoint",
    "CloudPriceRow",
    "ColabEndpointRow",
    "Dataset",
    "Datastore",
    "DemandRefusalsRow",
    "DeploymentTarget",
    "Device",
    "DeviceConfiguration",
    "DeviceDeployment",
    "DeviceRevision",
    "DeviceRevisionUse",
    "EventRow",
    "FederatedJob",
    "GpuAllocation",
    "IdempotencyKey",
    "Invitation",
    "Job",
    "JobDatastore",
    "JobLabel",
    "JobReservation",
    "JoinToken",
    "KeyFingerprint",
    "Lease",
    "LedgerAccount",
    "LedgerDaySum",
    "LedgerPosting",
    "LedgerTransaction",
    "LifecycleRow",
    "Model",
    "Node",
    "NodeAnnouncement",
    "OutboxRow",
    "Project",
    "ProjectMember",
    "Provider",
    "ProviderCallSlot",
    "Region",
    "RemovableRow",
    "RentalOfferRow",
    "Reservation",
    "SchemaCompatibility",
    "ShortageRow",
    "StoredSecret",
    "ThirdPartyKey",
    "Upload",
    "UsageMeter",
    "UsedLink",
    "User",
    "Volume",
    "VolumeHold",
    "place_of_content",
    "table_of_artifact",
]
