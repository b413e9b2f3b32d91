"""The first schema.

Revision: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

APPEND_ONLY = ("ledger_transactions", "ledger_postings", "events")
"""Tables whose rows are never edited: a database that refuses is better than a promise."""


def upgrade() -> None:
    create_accounts()
    create_announcements()
    create_audit()
    create_events()
    create_idempotency_keys()
    create_ledger_accounts()
    create_requests()
    create_ledger_transactions()
    create_projects()
    create_providers()
    create_stored_secrets()
    create_uploads()
    create_users()
    create_api_keys()
    create_jobs()
    create_ledger_postings()
    create_project_members()
    create_regions()
    create_nodes()
    create_usage_meters()
    create_allocations()
    create_gpu_allocations()
    forbid_edits()


def downgrade() -> None:
    raise NotImplementedError("the first schema: there is nothing before it")


def create_accounts() -> None:
    op.create_table(
        "accounts",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("plan", sa.String(), nullable=False),
        sa.Column("billing_account_id", sa.String(), nullable=True),
        sa.Column("is_administrator", sa.Boolean(), nullable=False),
        sa.Column("wallet_address", sa.String(), nullable=True),
        sa.Column("personal_project_id", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["billing_account_id"], ["accounts.id"], name="fk_accounts_billing_account_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_accounts"),
        sa.UniqueConstraint("name", name="uq_accounts_name"),
    )


def create_announcements() -> None:
    op.create_table(
        "announcements",
        sa.Column("minion_id", sa.String(), nullable=False),
        sa.Column("host_public_key", sa.Text(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("first_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("minion_id", name="pk_announcements"),
    )


def create_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("key_id", sa.String(), nullable=True),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("resource_id", sa.String(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    op.create_index("ix_audit_account_id", "audit", ["account_id"], unique=False)


def create_events() -> None:
    op.create_table(
        "events",
        sa.Column(
            "position",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("resource_id", sa.String(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("position", name="pk_events"),
        sa.UniqueConstraint("id", name="uq_events_id"),
    )
    op.create_index("events_of_account", "events", ["account_id", "position"], unique=False)
    op.create_index(
        "events_of_resource", "events", ["resource_id", "sequence", "index"], unique=True
    )


def create_idempotency_keys() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("request_sha256", sa.String(), nullable=False),
        sa.Column("status_code", sa.Integer(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("account_id", "key", name="pk_idempotency_keys"),
    )


def create_ledger_accounts() -> None:
    op.create_table(
        "ledger_accounts",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=True),
        sa.Column("balance_microcredits", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_ledger_accounts"),
    )
    op.create_index(
        "ix_ledger_accounts_account_id", "ledger_accounts", ["account_id"], unique=False
    )


def create_requests() -> None:
    op.create_table(
        "requests",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("resource_id", sa.String(), nullable=False),
        sa.Column("verb", sa.String(), nullable=False),
        sa.Column("argument", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_requests"),
    )
    op.create_index("ix_requests_resource_id", "requests", ["resource_id"], unique=False)
    op.create_index(
        "requests_undelivered",
        "requests",
        ["created_at"],
        unique=False,
        sqlite_where=sa.text("delivered_at IS NULL"),
        postgresql_where=sa.text("delivered_at IS NULL"),
    )


def create_ledger_transactions() -> None:
    op.create_table(
        "ledger_transactions",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("business_key", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=True),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_ledger_transactions_account_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_ledger_transactions"),
        sa.UniqueConstraint("business_key", name="uq_ledger_transactions_business_key"),
    )
    op.create_index(
        "ix_ledger_transactions_account_id", "ledger_transactions", ["account_id"], unique=False
    )
    op.create_index(
        "ix_ledger_transactions_job_id", "ledger_transactions", ["job_id"], unique=False
    )


def create_projects() -> None:
    op.create_table(
        "projects",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("personal", sa.Boolean(), nullable=False),
        sa.Column("use_only_owned_resources", sa.Boolean(), nullable=False),
        sa.Column("on_quota_exhausted", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_projects_account_id"),
        sa.PrimaryKeyConstraint("id", name="pk_projects"),
    )
    op.create_index("ix_projects_account_id", "projects", ["account_id"], unique=False)


def create_providers() -> None:
    op.create_table(
        "providers",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_reason", sa.Text(), nullable=True),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("payment_mode", sa.String(), nullable=False),
        sa.Column("preferred_credits_microcredits", sa.BigInteger(), nullable=True),
        sa.Column("fee_waived", sa.Boolean(), nullable=False),
        sa.Column("checks", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_providers_account_id"),
        sa.PrimaryKeyConstraint("id", name="pk_providers"),
    )
    op.create_index("ix_providers_account_id", "providers", ["account_id"], unique=False)


def create_stored_secrets() -> None:
    op.create_table(
        "stored_secrets",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_stored_secrets_account_id"
        ),
        sa.PrimaryKeyConstraint("name", name="pk_stored_secrets"),
    )
    op.create_index("ix_stored_secrets_account_id", "stored_secrets", ["account_id"], unique=False)


def create_uploads() -> None:
    op.create_table(
        "uploads",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_uploads_account_id"),
        sa.PrimaryKeyConstraint("id", name="pk_uploads"),
    )
    op.create_index("ix_uploads_account_id", "uploads", ["account_id"], unique=False)
    op.create_index("ix_uploads_sha256", "uploads", ["sha256"], unique=False)


def create_users() -> None:
    op.create_table(
        "users",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("email", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_users_account_id"),
        sa.PrimaryKeyConstraint("id", name="pk_users"),
        sa.UniqueConstraint("email", name="uq_users_email"),
    )
    op.create_index("ix_users_account_id", "users", ["account_id"], unique=False)


def create_api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("secret_sha256", sa.String(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_api_keys_account_id"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_api_keys_user_id"),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("secret_sha256", name="uq_api_keys_secret_sha256"),
    )
    op.create_index("ix_api_keys_account_id", "api_keys", ["account_id"], unique=False)
    op.create_index("ix_api_keys_user_id", "api_keys", ["user_id"], unique=False)


def create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_reason", sa.Text(), nullable=True),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("sealed_variables", sa.LargeBinary(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("workers", sa.JSON(), nullable=False),
        sa.Column("placement_refusals", sa.JSON(), nullable=False),
        sa.Column("rates", sa.JSON(), nullable=True),
        sa.Column("gpu_seconds", sa.BigInteger(), nullable=False),
        sa.Column("charged_microcredits", sa.BigInteger(), nullable=False),
        sa.Column("output_bytes", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_jobs_account_id"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_jobs_project_id"),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
    )
    op.create_index("ix_jobs_account_id", "jobs", ["account_id"], unique=False)
    op.create_index("ix_jobs_project_id", "jobs", ["project_id"], unique=False)
    op.create_index("jobs_by_account", "jobs", ["account_id", "id"], unique=False)
    op.create_index("jobs_by_status", "jobs", ["status", "priority", "created_at"], unique=False)


def create_ledger_postings() -> None:
    op.create_table(
        "ledger_postings",
        sa.Column("transaction_id", sa.String(), nullable=False),
        sa.Column("leg", sa.Integer(), nullable=False),
        sa.Column("ledger_account", sa.String(), nullable=False),
        sa.Column("amount_microcredits", sa.BigInteger(), nullable=False),
        sa.Column("balance_after_microcredits", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["ledger_account"], ["ledger_accounts.name"], name="fk_ledger_postings_ledger_account"
        ),
        sa.ForeignKeyConstraint(
            ["transaction_id"], ["ledger_transactions.id"], name="fk_ledger_postings_transaction_id"
        ),
        sa.PrimaryKeyConstraint("transaction_id", "leg", name="pk_ledger_postings"),
    )
    op.create_index(
        "ix_ledger_postings_ledger_account", "ledger_postings", ["ledger_account"], unique=False
    )


def create_project_members() -> None:
    op.create_table(
        "project_members",
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("permissions", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name="fk_project_members_project_id"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_project_members_user_id"),
        sa.PrimaryKeyConstraint("project_id", "user_id", name="pk_project_members"),
    )
    op.create_index("ix_project_members_user_id", "project_members", ["user_id"], unique=False)


def create_regions() -> None:
    op.create_table(
        "regions",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_reason", sa.Text(), nullable=True),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("provider_id", sa.String(), nullable=False),
        sa.Column("provider_kind", sa.String(), nullable=False),
        sa.Column("storage_mode", sa.String(), nullable=False),
        sa.Column("public", sa.Boolean(), nullable=False),
        sa.Column("exclusive_nodes", sa.Boolean(), nullable=False),
        sa.Column("node_root", sa.String(), nullable=True),
        sa.Column("relaxed_requirements", sa.JSON(), nullable=False),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_regions_account_id"),
        sa.ForeignKeyConstraint(["provider_id"], ["providers.id"], name="fk_regions_provider_id"),
        sa.PrimaryKeyConstraint("id", name="pk_regions"),
    )
    op.create_index("ix_regions_account_id", "regions", ["account_id"], unique=False)
    op.create_index("ix_regions_provider_id", "regions", ["provider_id"], unique=False)
    op.create_index(
        "regions_name_of_account",
        "regions",
        ["account_id", "name"],
        unique=True,
        sqlite_where=sa.text("status != 'archived'"),
        postgresql_where=sa.text("status != 'archived'"),
    )


def create_nodes() -> None:
    op.create_table(
        "nodes",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_reason", sa.Text(), nullable=True),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("region_id", sa.String(), nullable=False),
        sa.Column("minion_id", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("services", sa.JSON(), nullable=False),
        sa.Column("upnp", sa.Boolean(), nullable=False),
        sa.Column("mining", sa.Boolean(), nullable=False),
        sa.Column("host", sa.String(), nullable=True),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("hardware", sa.JSON(), nullable=True),
        sa.Column("requirements", sa.JSON(), nullable=False),
        sa.Column("preparation", sa.JSON(), nullable=True),
        sa.Column("gpu_type", sa.String(), nullable=True),
        sa.Column("gpu_count", sa.Integer(), nullable=False),
        sa.Column("cpu_count", sa.Integer(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("reserved_cpu_count", sa.Integer(), nullable=False),
        sa.Column("reserved_memory_bytes", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("reserved_cpu_count >= 0", name="nodes_reserved_cpu"),
        sa.CheckConstraint("reserved_memory_bytes >= 0", name="nodes_reserved_memory"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_nodes_account_id"),
        sa.ForeignKeyConstraint(["region_id"], ["regions.id"], name="fk_nodes_region_id"),
        sa.PrimaryKeyConstraint("id", name="pk_nodes"),
    )
    op.create_index("ix_nodes_account_id", "nodes", ["account_id"], unique=False)
    op.create_index("ix_nodes_gpu_type", "nodes", ["gpu_type"], unique=False)
    op.create_index("ix_nodes_region_id", "nodes", ["region_id"], unique=False)
    op.create_index("nodes_by_status", "nodes", ["status", "region_id"], unique=False)
    op.create_index(
        "nodes_minion_id",
        "nodes",
        ["minion_id"],
        unique=True,
        sqlite_where=sa.text("status != 'archived'"),
        postgresql_where=sa.text("status != 'archived'"),
    )


def create_usage_meters() -> None:
    op.create_table(
        "usage_meters",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("worker", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("payer_id", sa.String(), nullable=False),
        sa.Column("rates", sa.JSON(), nullable=False),
        sa.Column("microcredits_per_hour", sa.BigInteger(), nullable=False),
        sa.Column("running", sa.Boolean(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("posted_s", sa.BigInteger(), nullable=False),
        sa.Column("posted_microcredits", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_usage_meters_job_id"),
        sa.ForeignKeyConstraint(["payer_id"], ["accounts.id"], name="fk_usage_meters_payer_id"),
        sa.PrimaryKeyConstraint("job_id", "worker", "attempt", name="pk_usage_meters"),
    )
    op.create_index(
        "usage_meters_running",
        "usage_meters",
        ["payer_id"],
        unique=False,
        sqlite_where=sa.text("running"),
        postgresql_where=sa.text("running"),
    )


def create_allocations() -> None:
    op.create_table(
        "allocations",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("worker", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("cpu_count", sa.Integer(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("gpu_indices", sa.JSON(), nullable=False),
        sa.Column("port", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("announced_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("released_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_allocations_job_id"),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name="fk_allocations_node_id"),
        sa.PrimaryKeyConstraint("id", name="pk_allocations"),
    )
    op.create_index(
        "allocations_live_by_node",
        "allocations",
        ["node_id"],
        unique=False,
        sqlite_where=sa.text("released_at IS NULL"),
        postgresql_where=sa.text("released_at IS NULL"),
    )
    op.create_index(
        "allocations_of_worker", "allocations", ["job_id", "attempt", "worker"], unique=True
    )
    op.create_index(
        "allocations_port_of_node",
        "allocations",
        ["node_id", "port"],
        unique=True,
        sqlite_where=sa.text("released_at IS NULL AND port IS NOT NULL"),
        postgresql_where=sa.text("released_at IS NULL AND port IS NOT NULL"),
    )
    op.create_index(
        "allocations_unannounced",
        "allocations",
        ["created_at"],
        unique=False,
        sqlite_where=sa.text("announced_at IS NULL AND released_at IS NULL"),
        postgresql_where=sa.text("announced_at IS NULL AND released_at IS NULL"),
    )
    op.create_index("ix_allocations_job_id", "allocations", ["job_id"], unique=False)


def create_gpu_allocations() -> None:
    op.create_table(
        "gpu_allocations",
        sa.Column("allocation_id", sa.String(), nullable=False),
        sa.Column("gpu_index", sa.Integer(), nullable=False),
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("released_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["allocation_id"], ["allocations.id"], name="fk_gpu_allocations_allocation_id"
        ),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name="fk_gpu_allocations_node_id"),
        sa.PrimaryKeyConstraint("allocation_id", "gpu_index", name="pk_gpu_allocations"),
    )
    op.create_index(
        "gpu_allocations_live",
        "gpu_allocations",
        ["node_id", "gpu_index"],
        unique=True,
        sqlite_where=sa.text("released_at IS NULL"),
        postgresql_where=sa.text("released_at IS NULL"),
    )


def forbid_edits() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION refuse_edit() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$"
        )
    for table in APPEND_ONLY:
        for verb in ("UPDATE", "DELETE"):
            op.execute(_trigger(table, verb))


def _trigger(table: str, verb: str) -> str:
    name = f"{table}_refuse_{verb.lower()}"
    if op.get_bind().dialect.name == "postgresql":
        return (
            f"CREATE TRIGGER {name} BEFORE {verb} ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION refuse_edit()"
        )
    return (
        f"CREATE TRIGGER {name} BEFORE {verb} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
    )
