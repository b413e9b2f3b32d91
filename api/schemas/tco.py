"""The schemas of what owning costs against renting; every figure says where it comes from."""

from datetime import datetime
from typing import Annotated

from pydantic import AwareDatetime, Field

from api.schemas.base import RequestBody, ResourceId, ResponseBody

MOST_NODES = 100
MOST_OVERRIDES_CHARACTERS = 32_000
_Price = Annotated[int, Field(ge=0, le=1_000_000_000)]


class OwnershipStatement(RequestBody):
    """What a person states of nodes; nothing of it is stored."""

    purchase_price_microcredits: Annotated[
        int | None, Field(ge=1, le=10**15, description="Of one node")
    ] = None
    months_of_use: Annotated[
        int | None, Field(ge=1, le=600, description="For how long a node will be used")
    ] = None
    power_w: Annotated[
        int | None,
        Field(ge=0, le=1_000_000, description="Of one node; counts in all hours of the month"),
    ] = None
    electricity_microcredits_per_kwh: Annotated[int | None, Field(ge=0, le=10**9)] = None
    on_demand_microcredits_per_gpu_hour: Annotated[
        _Price | None, Field(description="In place of the list price")
    ] = None
    committed_microcredits_per_gpu_hour: Annotated[
        _Price | None, Field(description="In place of the list prices of commitments")
    ] = None


class TcoQuery(OwnershipStatement):
    """What is stated of all nodes, and of some of them alone; the period of the ledger."""

    overrides: Annotated[
        str | None,
        Field(
            max_length=MOST_OVERRIDES_CHARACTERS,
            description="A JSON object: fields of this query that are stated of one node, by its "
            "id",
        ),
    ] = None
    node_id: Annotated[
        list[ResourceId] | None, Field(max_length=MOST_NODES, description="Only these nodes")
    ] = None
    begins_at: AwareDatetime | None = None
    ends_at: AwareDatetime | None = None


class Figure(ResponseBody):
    value: int | float | None
    """Null: not known, or never; `source` says why."""
    source: str


class TcoMonth(ResponseBody):
    """A month of owning against renting, at one utilisation of the GPUs by own jobs."""

    is_now: bool
    """Whether the utilisation is that of the period."""
    utilisation: Figure
    """From 0 to 1."""
    gpu_hours: Figure
    rental_microcredits: Figure
    usage_fee_microcredits: Figure
    electricity_microcredits: Figure
    earned_microcredits: Figure
    saved_microcredits: Figure
    pays_back_months: Figure
    """The months until the purchase has paid for itself."""


class TcoComparison(ResponseBody):
    plan: str
    """`on-demand`, `committed`, or `committed-12` with the months of the commitment."""
    microcredits_per_gpu_hour: Figure | None
    """Null in the sum of several nodes."""
    months: list[TcoMonth]
    """The present utilisation first; empty, when no price is known."""


class NodeTco(ResponseBody):
    node_id: str
    name: str
    gpu_type: str
    gpu_count: int
    begins_at: datetime
    """Since when in the period the node is there."""
    purchase_price_microcredits: Figure
    months_of_use: Figure
    power_w: Figure
    electricity_microcredits_per_kwh: Figure
    gpu_hours: Figure
    """Of the period."""
    utilisation: Figure
    own_microcredits_per_gpu_hour: Figure
    """What a GPU-hour costs over the months of use, with the present use."""
    comparisons: list[TcoComparison]


class NodeLeftOut(ResponseBody):
    node_id: str
    name: str
    reason: str


class TcoTotal(ResponseBody):
    """All nodes together; a plan is there when each of the nodes has a price for it."""

    purchase_price_microcredits: Figure
    gpu_hours: Figure
    comparisons: list[TcoComparison]
    without_price: list[str]
    """The plans that a node has no price for, in words."""


class Tco(ResponseBody):
    """The total cost of owning the account's own nodes, against renting the same GPU-hours."""

    account_id: str
    begins_at: datetime
    ends_at: datetime
    hours_per_month: int
    nodes: list[NodeTco]
    total: TcoTotal | None
    """Null, when no node is calculated."""
    left_out: list[NodeLeftOut]
