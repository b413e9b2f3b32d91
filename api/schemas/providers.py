"""The schemas of providers, the sources of machines."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue

from api.schemas.base import Lifecycle, Name, Page, RequestBody, ResponseBody
from workflows.contracts.statuses import ProviderKind
from workflows.rules.catalogue.providers import TRAITS


def _only_available(kind: ProviderKind) -> ProviderKind:
    if kind not in TRAITS:
        raise ValueError(f"{kind} is not yet available; available: {', '.join(TRAITS)}")
    return kind


def _only_credits(mode: str) -> str:
    if mode != "credits":
        raise ValueError(f"{mode} is not yet available; available: credits")
    return mode


MAX_CREDENTIALS = 16_384
"""The number of characters of a credential."""

Credentials = Annotated[
    Annotated[dict[str, JsonValue], Field(max_length=64)]
    | Annotated[str, Field(max_length=MAX_CREDENTIALS)],
    Field(
        description='A service-account key as its JSON, `{"api_key": …}` of a marketplace, or a '
        'reference to one, also as `{"secret_ref": …}`: `store://providers/<kind>/<name>`, for '
        "administrators `env://NAME` or `file:///path`"
    ),
]
"""The credential of a provider, which is never shown again."""


class ProviderCreation(RequestBody):
    kind: Annotated[ProviderKind, AfterValidator(_only_available)]
    name: Name | None = None
    payment_mode: Annotated[Literal["credits", "stripe"], AfterValidator(_only_credits)] = "credits"
    credentials: Credentials | None = None
    preferred_credits_microcredits: Annotated[int, Field(gt=0, le=10**15)] | None = None
    waive_usage_fee: bool = False
    """Whether the provider's usage fee is waived; only administrators may set it."""
    accept_terms: bool = False
    """Whether you accept the terms of a kind that has some; without it, the refusal says them."""


class ProviderChange(RequestBody):
    """A change of a provider; fields that are left out keep their values."""

    credentials: Credentials | None = None
    """A new key of the same project; all checks run again with that key."""
    preferred_credits_microcredits: Annotated[int, Field(gt=0, le=10**15)] | None = None
    """The amount altogether, with what is used of the present one; null: the preference ends, and
    with it the waiver."""
    waive_usage_fee: bool | None = None
    """Whether there is no usage fee while the preferred credits last; for administrators."""


class ProviderCheck(ResponseBody):
    name: str
    status: str
    detail: str
    fix: str
    """The role, link or command that repairs what failed; empty where nothing failed."""


class ProviderCredentials(ResponseBody):
    """The credential of a provider: where the key is, and the parts that are not secret."""

    reference: str
    read_only: bool
    """Whether the key comes from the server's environment and cannot be changed here."""
    project_id: str
    service_account: str
    key: str
    """The last characters of the key's id."""


class ProviderResource(ResponseBody):
    """A cloud resource that was created for the whole provider."""

    name: str
    path: str


class ProviderEndpoint(ResponseBody):
    """Where the notebook of a provider has announced itself."""

    host: str
    port: int
    ssh_user: str
    minion_id: str
    """The fingerprint of its SSH host key."""
    gpu_type: str | None
    gpu_count: int
    announced_at: datetime
    expires_at: datetime
    """Until when jobs are sent there."""
    held_by: str | None
    """The name of the leased machine that it is at the moment; null: it is free."""


class Provider(Lifecycle):
    kind: str
    payment_mode: str
    preferred_credits_microcredits: int | None
    preferred_credits_left_microcredits: int | None
    """What the costs of the provider's machines have left of the preferred credits until now; null:
    none were given."""
    fee_waived: bool
    credentials: ProviderCredentials | None
    checks: list[ProviderCheck]
    resources: list[ProviderResource]
    reconciled_at: datetime | None
    """When the machines of a cloud were last compared completely with the leases; null: never."""
    endpoint: ProviderEndpoint | None
    """Where its notebook is; null: none has announced itself, or it has expired."""


class ProviderPage(Page[Provider]):
    pass
