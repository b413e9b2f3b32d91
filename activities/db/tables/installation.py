"""Tables of what holds for the whole installation, whichever process asks."""

from datetime import datetime

from sqlmodel import Field, SQLModel

from activities.db.instants import Instant


class KeyFingerprint(SQLModel, table=True):
    """The keyed fingerprint of one key that all processes of the installation must share.

    name: the name of the key, such as `master key`.
    """

    __tablename__ = "key_fingerprints"
    name: str = Field(primary_key=True)
    fingerprint: str
    created_at: datetime = Field(sa_type=Instant)


class UsedLink(SQLModel, table=True):
    """A link to the pages of a job that was used, so that no process of the API takes it again.

    link_sha256: of the sealed bytes of the link, in hexadecimal. expires_at: afterwards the link is
    refused anyway.
    """

    __tablename__ = "used_links"
    link_sha256: str = Field(primary_key=True)
    expires_at: datetime = Field(sa_type=Instant, index=True)


class SchemaCompatibility(SQLModel, table=True):
    """The one row that says which code runs beside the schema; migrating writes it.

    revision: of the schema; oldest_code_revision: the newest revision that the code must know at
    least.
    """

    __tablename__ = "schema_compatibility"
    revision: str = Field(primary_key=True)
    oldest_code_revision: str
