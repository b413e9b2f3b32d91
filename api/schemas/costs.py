"""The schemas of costs, in integer microcredits."""

from datetime import datetime
from enum import StrEnum

from api.schemas.base import ResponseBody


class CostKey(StrEnum):
    """By what costs are added up."""

    DAY = "day"
    PROVIDER = "provider"
    PROJECT = "project"
    REGION = "region"


class Cost(ResponseBody):
    key: str | None
    """The UTC day, or the id; null: what is about none, such as the machine of a permanent node by
    project."""
    name: str | None
    """The name of the provider, project or region."""
    charged_microcredits: int
    """What the ledger has charged, less what was taken back."""
    machine_microcredits: int
    """What leased machines have cost: their seconds at the price of their leases."""
    machine_cost_is_estimate: bool
    """Whether a price is of a dated list, because the provider does not give this machine's."""
    total_microcredits: int
    earned_microcredits: int
    """What guests on public capacity have earned, beside what the machines cost; not taken off."""


class Costs(ResponseBody):
    """What an account has cost in whole UTC days."""

    account_id: str
    begins_at: datetime
    ends_at: datetime
    by: CostKey
    items: list[Cost]
    is_whole: bool
    """Whether the items are all there are; the sums below always are of all."""
    earned_microcredits: int
    charged_microcredits: int
    machine_microcredits: int
    total_microcredits: int
