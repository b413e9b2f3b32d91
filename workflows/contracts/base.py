"""The base class of every model that workflows, activities, the API and rows exchange."""

from pydantic import BaseModel, ConfigDict


class Contract(BaseModel):
    """A frozen value that ignores unknown fields.

    An old and a new release can therefore run side by side during an upgrade. The API's own models
    refuse unknown fields instead.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")


class Done(Contract):
    """The empty answer of an effect."""
