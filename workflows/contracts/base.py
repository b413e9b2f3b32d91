"""The base of every noun that crosses a border between workflow, activity, API and store."""

from pydantic import BaseModel, ConfigDict


class Contract(BaseModel):
    """A frozen value. Unknown fields are ignored, so that a newer writer and an older reader
    can work side by side during an upgrade; the API's own models refuse them instead."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Done(Contract):
    """The answer of an effect that has nothing to tell but that it was done."""
