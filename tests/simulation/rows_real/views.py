"""The rows as the views of `Rows` show them, by plain SQL."""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from activities.billing.guests import billed_until
from activities.billing.payers import credits_name
from tests.simulation.contracts import (
    AccountView,
    AllocationView,
    CapacityView,
    JobView,
    LeaseView,
    NodeView,
    ResourceView,
    Usage,
)
from tests.simulation.rows_real.house import Tenant
from workflows.contracts.jobs import run_id
from workflows.contracts.lifecycles import JOB, noun_of
from workflows.rules.placement.planner import STARVATION_LIMIT

_REFUSAL = """CASE
    WHEN status = 'waiting_for_resources' THEN (SELECT refusals ->> '$[0].detail'
    FROM demand_refusals AS why WHERE why.project_id = jobs.project_id
    AND why.demand_key = jobs.demand_key) END"""
_WHY = f"coalesce(status_reason, placement_refusals ->> '$[0].detail', {_REFUSAL})"
"""A job that waits says why, as activities/placement/refusals.py:refusals_of_jobs."""


class Views:
    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant

    def all(self, query: str, *values: object) -> list[sqlite3.Row]:
        self._tenant.house.enter(self._tenant)
        return self._tenant.house.raw.execute(query, values).fetchall()

    def number(self, query: str, *values: object) -> int:
        """The only value of the only row; 0 for none."""
        found = self.all(query, *values)
        return int(found[0][0] or 0) if found else 0

    def jobs(self) -> Iterable[JobView]:
        return [
            JobView(
                job_id=row["id"],
                account_id=row["account_id"],
                type=row["type"],
                status=row["status"],
                status_reason=row["why"],
                attempt=row["attempt"],
                is_open=row["status"] not in JOB.final_statuses,
                run_ids=tuple(
                    each["run_id"] for each in json.loads(row["workers"]) if each.get("run_id")
                ),
                created_at=_instant(row["created_at"]),
                auto_restarts=row["max_restarts"] > 0,
                refusal=row["refusal"],
                restarts=row["restarts"],
                delivery_status=row["delivery_status"],
            )
            for row in self.all(
                "SELECT id, account_id, type, status, attempt, restarts, delivery_status,"
                f" workers, created_at, {_WHY} AS why,"
                f" spec ->> '$.safety.max_restarts' AS max_restarts, {_REFUSAL} AS refusal"
                " FROM jobs ORDER BY id"
            )
        ]

    def nodes(self) -> Iterable[NodeView]:
        return [
            NodeView(
                node_id=row["id"],
                region_id=row["region_id"],
                status=row["status"],
                status_reason=row["status_reason"],
                wanted=row["wanted_status"],
                host=row["host"],
                minion_id=row["minion_id"] or None,
                lease_id=row["lease_id"],
                ephemeral=row["type"] == "ephemeral",
                was_forced=bool(row["removal_force"]),
            )
            for row in self.all(
                "SELECT *, (SELECT max(leases.id) FROM leases WHERE holder_id = nodes.id)"
                " AS lease_id FROM nodes ORDER BY id"
            )
        ]

    def leases(self, provider_id: str | None = None) -> Iterable[LeaseView]:
        return [
            LeaseView(
                lease_id=row["id"],
                provider_id=row["provider_id"],
                name=row["name"],
                status=row["status"],
                holder_id=row["holder_id"],
                zone=row["zone"],
                began_at=_instant_or_none(row["began_at"]),
                ended_at=_instant_or_none(row["ended_at"]),
            )
            for row in self.all(
                "SELECT id, provider_id, name, status, holder_id, offer ->> '$.zone' AS zone,"
                " began_at, ended_at FROM leases"
                " WHERE provider_id = coalesce(?, provider_id) ORDER BY id",
                provider_id,
            )
        ]

    def allocations(self) -> Iterable[AllocationView]:
        """Those that hold anything; a leaving one belongs to its node, and to no job any more."""
        return [
            AllocationView(
                allocation_id=row["id"],
                job_id=None if row["state"] == "leaving" else row["job_id"],
                run_id=run_id(row["job_id"], row["worker"], row["attempt"]),
                node_id=row["node_id"],
                gpu_indices=tuple(json.loads(row["gpu_indices"])),
                status=row["state"],
            )
            for row in self.all("SELECT * FROM allocations WHERE released_at IS NULL ORDER BY id")
        ]

    def resources(self, table: str) -> Iterable[ResourceView]:
        provider = "provider_id" if table == "regions" else "''"
        refused = (
            f"(SELECT count(*) FROM events WHERE resource_id = {table}.id"
            " AND type LIKE '%.removal-refused')"
        )
        query = f"SELECT id, status, status_reason, {provider}, {refused} FROM {table} ORDER BY id"
        return [ResourceView(*row) for row in self.all(query)]

    def accounts(self) -> Iterable[AccountView]:
        balances = {
            row["name"]: row["balance_microcredits"]
            for row in self.all("SELECT name, balance_microcredits FROM ledger_accounts")
        }
        return [
            AccountView(row["id"], balances.get(credits_name(row["id"]), 0), row["burn"])
            for row in self.all(
                "SELECT id, (SELECT coalesce(sum(microcredits_per_hour), 0) FROM usage_meters"
                " WHERE payer_id = accounts.id AND running) AS burn FROM accounts ORDER BY id"
            )
        ]

    def capacities(self) -> Iterable[CapacityView]:
        rows = self.all(
            "SELECT *, coalesce(json_array_length(hardware, '$.gpus'), 0) AS gpus,"
            " coalesce(hardware ->> '$.free_disk_bytes', 0) AS free_disk_bytes FROM nodes"
            " WHERE type <> 'ephemeral' AND status <> 'archived' AND services LIKE '%compute%'"
            " ORDER BY id"
        )
        return [
            CapacityView(
                node_id=row["id"],
                name=row["name"],
                account_id=row["account_id"],
                region_id=row["region_id"],
                is_active=row["status"] == "active",
                gpu_count=row["gpus"],
                cpu_count=row["cpu_count"],
                free_disk_bytes=row["free_disk_bytes"],
            )
            for row in rows
        ]

    def usage(self, job_id: str | None = None) -> Iterable[Usage]:
        rows = self.all(
            "SELECT job_id, worker, attempt, posted_s, credits_used_up_at FROM usage_meters"
            " WHERE job_id = coalesce(?, job_id) ORDER BY job_id, attempt, worker",
            job_id,
        )
        return [
            Usage(
                run_id(row["job_id"], row["worker"], row["attempt"]),
                row["posted_s"],
                billed_until(_instant_or_none(row["credits_used_up_at"]), None),
            )
            for row in rows
        ]

    def unsettled_of(self, job_id: str) -> int:
        return self.number(
            "SELECT sum(max(0, kept.value ->> '$.through_s' - coalesce(meter.posted_s, 0)))"
            " FROM jobs, json_each(coalesce(jobs.unsettled, '[]')) AS kept"
            " LEFT JOIN usage_meters AS meter ON meter.job_id = kept.value ->> '$.job_id'"
            " AND meter.worker = kept.value ->> '$.worker'"
            " AND meter.attempt = kept.value ->> '$.attempt' WHERE jobs.id = ?",
            job_id,
        )

    def sequence_of(self, resource_id: str) -> int:
        table = noun_of(resource_id).plural
        return self.number(f"SELECT sequence FROM {table} WHERE id = ?", resource_id)

    def dataset_status(self, dataset_id: str) -> str:
        found = self.all("SELECT status FROM datasets WHERE id = ?", dataset_id)
        return found[0]["status"] if found else ""

    def delivery_status(self, job_id: str) -> str | None:
        found = self.all("SELECT delivery_status FROM jobs WHERE id = ?", job_id)
        return found[0]["delivery_status"] if found else None

    def provider_status(self, provider_id: str) -> str | None:
        found = self.all("SELECT status FROM providers WHERE id = ?", provider_id)
        return found[0]["status"] if found else None

    def ready_providers(self, kind: str) -> Sequence[str]:
        query = "SELECT id FROM providers WHERE kind = ? AND status = 'ready' ORDER BY id"
        return [row["id"] for row in self.all(query, kind)]

    def has_key(self, provider_id: str) -> bool:
        return bool(
            self.number(
                "SELECT count(*) FROM providers JOIN stored_secrets"
                " ON providers.credentials = 'store://' || stored_secrets.name"
                " WHERE providers.id = ?",
                provider_id,
            )
        )

    def placement_changes(self) -> list[datetime]:
        """When a shortage ends, or a waiting job has waited too long to be passed over."""
        overdue = self.all("SELECT waiting_since FROM jobs WHERE status = 'waiting_for_resources'")
        ends = self.all("SELECT until FROM shortages")
        starved = [_instant(row[0]) + STARVATION_LIMIT for row in overdue if row[0]]
        return starved + [_instant(row[0]) for row in ends]

    def dump(self) -> str:
        self._tenant.house.enter(self._tenant)
        return "\n".join(self._tenant.house.raw.iterdump())


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def _instant_or_none(text: Any) -> datetime | None:
    return None if text is None else _instant(text)
