"""Tables of datastores, and of the jobs that use them."""

from sqlmodel import Field, SQLModel

from activities.db.tables.columns import RemovableRow, index_where


class Datastore(RemovableRow, table=True):
    """A shared folder of a region; only the sites of the region are given its password."""

    __tablename__ = "datastores"
    region_id: str = Field(foreign_key="regions.id", index=True)
    type: str
    host: str
    port: int | None = None
    root_path: str
    user: str | None = None
    sealed_password: bytes | None = None
    """Sealed for the account; None: there is none, or it is forgotten with the removal."""
    way: str | None = None
    """How the node that checked it last reaches it; None: no node has."""
    __table_args__ = (
        index_where(
            "status != 'archived'", "datastores_name_of_region", "region_id", "name", unique=True
        ),
    )


class JobDatastore(SQLModel, table=True):
    """A job uses a datastore, from its submission on."""

    __tablename__ = "job_datastores"
    job_id: str = Field(primary_key=True, foreign_key="jobs.id")
    datastore_id: str = Field(primary_key=True, foreign_key="datastores.id", index=True)
