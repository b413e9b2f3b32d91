"""Keep devices, their configurations with revisions, and deployments.

Revision: 0038, after 0037
"""

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None
oldest_code_revision = "0027"
"""The oldest code that runs beside this schema: it only expands."""


def upgrade() -> None:
    op.create_table(
        "device_configurations",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("region_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("latest_revision", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_device_configurations_account_id"
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name="fk_device_configurations_project_id"
        ),
        sa.ForeignKeyConstraint(
            ["region_id"], ["regions.id"], name="fk_device_configurations_region_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_device_configurations"),
    )
    op.create_index(
        "device_configurations_name_of_region",
        "device_configurations",
        ["region_id", "name"],
        unique=True,
        sqlite_where=sa.text("removed_at IS NULL"),
        postgresql_where=sa.text("removed_at IS NULL"),
    )
    op.create_index(
        "ix_device_configurations_account_id", "device_configurations", ["account_id"], unique=False
    )
    op.create_index(
        "ix_device_configurations_project_id", "device_configurations", ["project_id"], unique=False
    )
    op.create_index(
        "ix_device_configurations_region_id", "device_configurations", ["region_id"], unique=False
    )

    op.create_table(
        "device_deployments",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_reason", sa.Text(), nullable=True),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("recorded_run_id", sa.String(), nullable=False),
        sa.Column("recorded_history_length", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("region_id", sa.String(), nullable=False),
        sa.Column("configuration_id", sa.String(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("policy", sa.JSON(), nullable=False),
        sa.Column("counts", sa.JSON(), nullable=False),
        sa.Column("deadline", sa.DateTime(timezone=True), nullable=True),
        sa.Column("requested_by", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_device_deployments_account_id"
        ),
        sa.ForeignKeyConstraint(
            ["configuration_id"],
            ["device_configurations.id"],
            name="fk_device_deployments_configuration_id",
        ),
        sa.ForeignKeyConstraint(
            ["region_id"], ["regions.id"], name="fk_device_deployments_region_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_device_deployments"),
    )
    op.create_index(
        "device_deployments_by_account", "device_deployments", ["account_id", "id"], unique=False
    )
    op.create_index(
        "ix_device_deployments_account_id", "device_deployments", ["account_id"], unique=False
    )
    op.create_index(
        "ix_device_deployments_configuration_id",
        "device_deployments",
        ["configuration_id"],
        unique=False,
    )
    op.create_index(
        "ix_device_deployments_region_id", "device_deployments", ["region_id"], unique=False
    )

    op.create_table(
        "device_revision_uses",
        sa.Column("configuration_id", sa.String(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("resource_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["configuration_id"],
            ["device_configurations.id"],
            name="fk_device_revision_uses_configuration_id",
        ),
        sa.PrimaryKeyConstraint(
            "configuration_id", "revision", "resource_id", name="pk_device_revision_uses"
        ),
    )
    op.create_index(
        "ix_device_revision_uses_resource_id", "device_revision_uses", ["resource_id"], unique=False
    )

    op.create_table(
        "device_revisions",
        sa.Column("configuration_id", sa.String(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("sealed_variables", sa.LargeBinary(), nullable=True),
        sa.Column("variables_revision", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["configuration_id"],
            ["device_configurations.id"],
            name="fk_device_revisions_configuration_id",
        ),
        sa.PrimaryKeyConstraint("configuration_id", "revision", name="pk_device_revisions"),
    )
    op.create_table(
        "devices",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_reason", sa.Text(), nullable=True),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("recorded_run_id", sa.String(), nullable=False),
        sa.Column("recorded_history_length", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("removal_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("removal_force", sa.Boolean(), nullable=False),
        sa.Column("removal_requested_by", sa.String(), nullable=True),
        sa.Column("removal_reschedules", sa.Boolean(), nullable=False),
        sa.Column("region_id", sa.String(), nullable=False),
        sa.Column("minion_id", sa.String(), nullable=False),
        sa.Column("upnp", sa.Boolean(), nullable=False),
        sa.Column("host", sa.String(), nullable=True),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=True),
        sa.Column("hardware", sa.JSON(), nullable=True),
        sa.Column("requirements", sa.JSON(), nullable=False),
        sa.Column("preparation", sa.JSON(), nullable=True),
        sa.Column("wanted_status", sa.String(), nullable=True),
        sa.Column("wanted_revision", sa.Integer(), nullable=False),
        sa.Column("seen_revision", sa.Integer(), nullable=False),
        sa.Column("configuration_id", sa.String(), nullable=True),
        sa.Column("assignment_number", sa.Integer(), nullable=False),
        sa.Column("assignment_configuration_id", sa.String(), nullable=True),
        sa.Column("assignment_revision", sa.Integer(), nullable=True),
        sa.Column("assignment_deployment_id", sa.String(), nullable=True),
        sa.Column("assignment_by", sa.String(), nullable=False),
        sa.Column("assignment_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("followed_number", sa.Integer(), nullable=False),
        sa.Column("run_number", sa.Integer(), nullable=False),
        sa.Column("running_configuration_id", sa.String(), nullable=True),
        sa.Column("running_revision", sa.Integer(), nullable=True),
        sa.Column("inference_status", sa.String(), nullable=False),
        sa.Column("inference_reason", sa.Text(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("output_backlog", sa.JSON(), nullable=True),
        sa.Column("deployed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deployed_by", sa.String(), nullable=True),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_devices_account_id"),
        sa.ForeignKeyConstraint(
            ["configuration_id"], ["device_configurations.id"], name="fk_devices_configuration_id"
        ),
        sa.ForeignKeyConstraint(["region_id"], ["regions.id"], name="fk_devices_region_id"),
        sa.PrimaryKeyConstraint("id", name="pk_devices"),
    )
    op.create_index("devices_by_account", "devices", ["account_id", "id"], unique=False)
    op.create_index("devices_by_status", "devices", ["status", "region_id"], unique=False)
    op.create_index(
        "devices_minion_id",
        "devices",
        ["account_id", "minion_id"],
        unique=True,
        sqlite_where=sa.text("status != 'archived'"),
        postgresql_where=sa.text("status != 'archived'"),
    )
    op.create_index(
        "devices_name_of_region",
        "devices",
        ["region_id", "name"],
        unique=True,
        sqlite_where=sa.text("status != 'archived'"),
        postgresql_where=sa.text("status != 'archived'"),
    )
    op.create_index(
        "devices_with_open_assignments",
        "devices",
        ["id"],
        unique=False,
        sqlite_where=sa.text("assignment_number > followed_number"),
        postgresql_where=sa.text("assignment_number > followed_number"),
    )
    op.create_index("ix_devices_account_id", "devices", ["account_id"], unique=False)
    op.create_index("ix_devices_configuration_id", "devices", ["configuration_id"], unique=False)
    op.create_index("ix_devices_region_id", "devices", ["region_id"], unique=False)

    op.create_table(
        "deployment_targets",
        sa.Column("deployment_id", sa.String(), nullable=False),
        sa.Column("device_id", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("assignment_number", sa.Integer(), nullable=True),
        sa.Column("earlier_configuration_id", sa.String(), nullable=True),
        sa.Column("earlier_revision", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("away_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["deployment_id"], ["device_deployments.id"], name="fk_deployment_targets_deployment_id"
        ),
        sa.ForeignKeyConstraint(
            ["device_id"], ["devices.id"], name="fk_deployment_targets_device_id"
        ),
        sa.PrimaryKeyConstraint("deployment_id", "device_id", name="pk_deployment_targets"),
    )
    op.create_index(
        "deployment_targets_by_state",
        "deployment_targets",
        ["deployment_id", "state", "device_id"],
        unique=False,
    )
    op.create_index(
        "ix_deployment_targets_device_id", "deployment_targets", ["device_id"], unique=False
    )


def downgrade() -> None:
    op.drop_table("deployment_targets")
    op.drop_table("devices")
    op.drop_table("device_revisions")
    op.drop_table("device_revision_uses")
    op.drop_table("device_deployments")
    op.drop_table("device_configurations")
