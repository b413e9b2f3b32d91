"""Credentials of providers: sealed in the database, in the environment or in a file.

Everything else knows a credential by its reference only. `store://providers/<kind>/<name>` is
sealed in the database, for each account by itself; a variable of the environment overrides it, but
where it would replace what another account than the administrators' has stored there.
`env://NAME` and `file:///path` are on the server, and only administrators may use them. A variable
holds the credential, or the absolute path of its file. Secrets of jobs are under
`store://projects/`, where no credential may be.
"""

import re
from datetime import datetime
from pathlib import Path

from sqlmodel import Session

from activities.db.session import database
from activities.db.tables import Account, Provider, StoredSecret
from activities.secrets.sealing import MasterKeyError, SealBrokenError, secret_box
from activities.settings import environment_value

STORE = "store://"
STORED = "stored-secrets"
"""The kind of the sealed values under `store://`."""
ENVIRONMENT = "env://"
FILE = "file://"
OF_THE_SERVER = (ENVIRONMENT, FILE)
MAX_FILE_BYTES = 64 * 1024
_STORED = re.compile(r"store://providers/[a-z]+/[a-zA-Z0-9_-]{1,100}")
_NAME = re.compile(r"env://[A-Za-z_][A-Za-z0-9_]{0,199}")


class CredentialsError(ValueError):
    """The error for a reference without a usable credential; the message never holds a value."""


def is_reference(given: str) -> bool:
    return given.startswith((STORE, *OF_THE_SERVER))


def reference_mistake(reference: str) -> str | None:
    """The rule that a reference breaks; None when the reference is valid."""
    if reference.startswith(STORE):
        return None if _STORED.fullmatch(reference) else "is store://providers/<kind>/<name>"
    if reference.startswith(ENVIRONMENT):
        if "/" in reference.removeprefix(ENVIRONMENT):
            return "is env://NAME, the name of a variable and not a path, which is file:///path"
        return None if _NAME.fullmatch(reference) else "is env://NAME"
    path = reference.removeprefix(FILE)
    return None if path.startswith("/") and "\0" not in path else "is file:///path"


def project_secret(session: Session, name: str) -> str | None:
    """The value of a secret of a project, by its name in the store; None: there is none.

    name: `projects/<project id>/<name>`.
    """
    row = session.get(StoredSecret, name)
    if row is None:
        return None
    return secret_box(STORED, row.account_id).open(row.sealed, name.encode()).decode()


def own_place(kind: str, provider_id: str) -> str:
    """The name in the store of a credential that was given as a literal."""
    return f"providers/{kind}/{provider_id}"


def field_place(account_id: str, kind: str, name: str) -> str:
    """The name in the store of what an account keeps at `store://providers/<kind>/<name>`."""
    return f"providers/{kind}/{account_id}/{name}"


def field_reference(kind: str, name: str) -> str:
    return f"{STORE}providers/{kind}/{name}"


def seal_credentials(
    session: Session, account_id: str, name: str, content: str, now: datetime
) -> str:
    """Store a credential, replacing an earlier one of this name; return its reference."""
    row = StoredSecret(
        name=name,
        account_id=account_id,
        sealed=secret_box(STORED, account_id).seal(content.encode(), name.encode()),
        updated_at=now,
    )
    session.merge(row)
    return f"{STORE}{name}"


def forget_credentials(provider_id: str) -> None:
    """Remove the stored credential of this provider; silent when there is none."""
    with database().write() as session:
        provider = session.get(Provider, provider_id)
        if provider is None:
            return
        row = session.get(StoredSecret, own_place(provider.kind, provider_id))
        if row is not None:
            session.delete(row)


def environment_name(reference: str) -> str:
    """The name of the variable that overrides a credential in the store."""
    name = reference.removeprefix(STORE)
    return "BASELOAD_STORE_" + re.sub(r"[^A-Za-z0-9]", "_", name).upper()


def is_read_only(session: Session, account_id: str, reference: str) -> bool:
    """Whether the environment overrides the credential, so that it cannot be changed here.

    A key of the server never takes the place of one that an account has stored itself, unless the
    account is the administrators'.
    """
    if not reference.startswith(STORE) or environment_value(environment_name(reference)) is None:
        return False
    stored = session.get(StoredSecret, _field_place_of(account_id, reference))
    account = session.get(Account, account_id) if stored is not None else None
    return account is None or account.is_administrator


def stored_row(session: Session, account_id: str, reference: str) -> StoredSecret | None:
    """The row of what the account has at a reference of the store; None: it has nothing there."""
    for name in (reference.removeprefix(STORE), _field_place_of(account_id, reference)):
        row = session.get(StoredSecret, name)
        if row is not None and row.account_id == account_id:
            return row
    return None


def _field_place_of(account_id: str, reference: str) -> str:
    _, kind, name = reference.removeprefix(STORE).split("/")
    return field_place(account_id, kind, name)


def open_credentials(session: Session, account_id: str, reference: str) -> str:
    """The credential of a reference, for this account.

    Raises: CredentialsError, when the reference is not valid, or there is no such credential, or
    it cannot be opened.
    """
    if rule := reference_mistake(reference):
        raise CredentialsError(f"{reference}: {rule}")
    if reference.startswith(ENVIRONMENT):
        return _from_environment(reference, reference.removeprefix(ENVIRONMENT))
    if reference.startswith(FILE):
        return _from_file(Path(reference.removeprefix(FILE)), reference)
    if is_read_only(session, account_id, reference):
        return _from_environment(reference, environment_name(reference))
    row = stored_row(session, account_id, reference)
    if row is None:
        raise CredentialsError(f"{reference}: there is no such key in the store")
    try:
        return secret_box(STORED, account_id).open(row.sealed, row.name.encode()).decode()
    except (SealBrokenError, MasterKeyError) as cause:
        raise CredentialsError(f"{reference}: cannot be opened: {cause}") from cause


def credentials_of(provider_id: str) -> str:
    """The credential of a provider.

    Raises: CredentialsError, when the credential is not where the provider's row says.
    """
    with database().read() as session:
        provider = session.get(Provider, provider_id)
        if provider is None or provider.credentials is None:
            raise CredentialsError(f"{provider_id}: asked for its key, found no reference to one")
        return open_credentials(session, provider.account_id, provider.credentials)


def _from_environment(reference: str, name: str) -> str:
    """The value of a variable, or the content of the file whose path the value is."""
    value = environment_value(name)
    if not value:
        raise CredentialsError(f"{reference}: {name} is not set in the server's environment")
    if value.startswith("/"):
        return _from_file(Path(value), f"{reference}: the file that {name} names")
    return value


def _from_file(path: Path, said: str) -> str:
    """The content of a file of the server. Raises: CredentialsError, which begins with `said`."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise CredentialsError(f"{said}: is larger than {MAX_FILE_BYTES} bytes")
        return path.read_text()
    except (OSError, ValueError) as cause:
        raise CredentialsError(f"{said}: cannot be read: {type(cause).__name__}") from cause
