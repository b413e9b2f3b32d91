"""The schemas of accounts, users, API keys, projects and secrets."""

import re
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, Field

from api.schemas.base import (
    Name,
    Page,
    RequestBody,
    ResourceId,
    ResponseBody,
    without_control_characters,
)
from workflows.rules.accounts.projects import MOST_EGRESS, egress

_EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s]{1,190}")


def _email(text: str) -> str:
    if not _EMAIL.fullmatch(text) or not text.isprintable():
        raise ValueError("is an e-mail address")
    return text.lower()


Email = Annotated[str, Field(max_length=254), AfterValidator(_email)]
Scope = Annotated[str, Field(max_length=100)]
Plan = Literal["individual", "team", "enterprise"]
UserRole = Literal["owner", "member", "billing"]


class AccountCreation(RequestBody):
    name: Name
    plan: Plan = "individual"
    billing_account_id: ResourceId | None = None
    owner_email: Email | None = None
    """The address of the account's first user, who owns its keys; None: an address is made up."""


class AccountChange(RequestBody):
    """A change of an account; fields that are left out keep their values."""

    name: Name | None = None
    plan: Plan | None = None
    billing_account_id: ResourceId | None = None


def _wallet(text: str) -> str:
    if not re.fullmatch(r"[!-~]{1,200}", text):
        raise ValueError("is 1 to 200 printable characters without blanks")
    return text


Coin = Annotated[str, Field(max_length=10, pattern=r"^[A-Z][A-Z0-9]{1,9}$")]
Wallet = Annotated[str, Field(max_length=200), AfterValidator(_wallet)]
Variable = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class IdleWorkload(RequestBody):
    """What the account's nodes with `mining` run while no job is there."""

    image: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    """The container image; None: the command runs on the machine itself."""
    command: Annotated[str, Field(min_length=1, max_length=10_000)]
    """The command; whoever reads the account reads it, so it is no place for secrets."""
    environment: Annotated[
        dict[Variable, Annotated[str, Field(max_length=4000)]], Field(max_length=64)
    ] = Field(default_factory=dict)
    """Its variables; each wallet is there as `BASELOAD_WALLET_<COIN>`."""


class OwnAccountChange(RequestBody):
    """A change of the caller's own account; fields that are left out keep their values."""

    name: Name | None = None
    wallet_address: (
        Annotated[
            str, Field(min_length=1, max_length=200), AfterValidator(without_control_characters)
        ]
        | None
    ) = None
    wallets: Annotated[dict[Coin, Wallet], Field(max_length=16)] | None = None
    """The wallets of the idle workload: an address for each coin, such as XMR."""
    idle_workload: IdleWorkload | None = None
    """What nodes with `mining` run while no job is there; null: nothing."""


class IdleWorkloadShown(ResponseBody):
    image: str | None = None
    command: str
    environment: dict[str, str]


class CreditGrant(RequestBody):
    amount_microcredits: Annotated[int, Field(gt=0, le=10**15)]


class Purchase(RequestBody):
    """A payment that was received for credits, as an administrator records it."""

    amount_microcredits: Annotated[int, Field(gt=0, le=10**15)]
    """At least 25 credits."""
    reference: Annotated[
        str, Field(min_length=1, max_length=200), AfterValidator(without_control_characters)
    ]
    """By which the payment is known where it was received, each once."""


class Account(ResponseBody):
    id: str
    name: str
    plan: str
    billing_account_id: str | None
    is_administrator: bool
    wallet_address: str | None
    wallets: dict[str, str]
    idle_workload: IdleWorkloadShown | None
    personal_project_id: str
    removed_at: datetime | None
    """When the account was removed; null: it is there."""
    balance_microcredits: int
    """The balance of the payer: the billing account if there is one, else this account."""
    created_at: datetime
    updated_at: datetime


class AccountPage(Page[Account]):
    pass


class UserCreation(RequestBody):
    email: Email
    role: UserRole = "member"


class UserChange(RequestBody):
    role: UserRole


class User(ResponseBody):
    id: str
    account_id: str
    """The user's own account."""
    email: str
    email_verified: bool
    """Whether the person with this address has proved it; until then it makes nobody a member."""
    role: str
    """The user's role in the account that lists it."""
    is_invited: bool
    """Whether the user is of another account, and a member of this one."""
    created_at: datetime


class UserPage(Page[User]):
    pass


class ApiKeyCreation(RequestBody):
    name: Name
    scopes: Annotated[tuple[Scope, ...], Field(min_length=1, max_length=40)] | None = None
    """`*`, `read`, `<noun>:read`, `<noun>:write`, `secrets:use` or `credentials:use`; None: the
    scopes of the caller's key."""
    expires_at: AwareDatetime | None = None
    """At the latest when the caller's key expires; None: when that does."""
    requests_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """The key's own rate limit in each API process, beside that of all keys; such a key makes no
    keys. They may come all at once. None: it has none."""
    user_id: ResourceId | None = None
    """The user of the account who gets the key, also an invited one; None: the caller. Only owners
    may name another."""


class ApiKey(ResponseBody):
    id: str
    account_id: str
    user_id: str
    parent_key_id: str | None
    """The key with which this one was made, and with which it is revoked; null: none."""
    name: str
    scopes: list[str]
    requests_per_minute: int | None
    """The key's own rate limit, beside that of all keys; null: it has none."""
    expires_at: datetime | None
    last_used_at: datetime | None
    created_at: datetime


class NewApiKey(ApiKey):
    secret: str
    """The key itself, `bl_…`, which is shown only in this answer."""


class ApiKeyPage(Page[ApiKey]):
    pass


OnQuotaExhausted = Literal["reroute", "fail"]
FederatedLogs = Literal["none", "exit_only", "all"]
Egress = Annotated[
    tuple[Annotated[str, Field(max_length=300), AfterValidator(egress)], ...],
    Field(max_length=MOST_EGRESS),
]
"""What federated jobs may reach: `host:port` or `CIDR:port`, such as `10.1.0.0/16:443`."""


class ProjectCreation(RequestBody):
    name: Name
    use_only_owned_resources: bool = False
    on_quota_exhausted: OnQuotaExhausted = "reroute"
    federated_egress: Egress = ()
    federated_logs: FederatedLogs = "none"


class ProjectChange(RequestBody):
    """A change of a project; fields that are left out keep their values."""

    name: Name | None = None
    use_only_owned_resources: bool | None = None
    on_quota_exhausted: OnQuotaExhausted | None = None
    federated_egress: Egress | None = None
    federated_logs: FederatedLogs | None = None
    """What is shown of the logs of federated jobs."""


class Project(ResponseBody):
    id: str
    account_id: str
    name: str
    personal: bool
    use_only_owned_resources: bool
    on_quota_exhausted: str
    federated_egress: list[str]
    federated_logs: str
    created_at: datetime
    updated_at: datetime


class ProjectPage(Page[Project]):
    pass


class ProjectSecretCreation(RequestBody):
    name: Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    value: Annotated[str, Field(min_length=1, max_length=65_536)] = Field(repr=False)


class ProjectSecret(ResponseBody):
    """A secret of a project, without its value, which cannot be read again."""

    name: str
    reference: str
    """The reference by which a job names the secret: `store://projects/<project>/<name>`."""
    updated_at: datetime


class ProjectSecretPage(Page[ProjectSecret]):
    pass
