"""The base class of every model that workflows, activities, the API and rows exchange."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

MOST_SECONDS = 10 * 366 * 24 * 3600
"""The longest duration that anything is believed to have lasted, in seconds: ten years."""


def bounded_seconds(value: Any) -> Any:
    """The seconds within 0 to `MOST_SECONDS`; what is no number at all counts as 0.

    A duration comes from a machine of somebody else. Beyond a million years it could not be added
    to an instant any more, and the workflow that tries would be stuck.
    """
    if not isinstance(value, int | float):
        return 0 if value is None else value  # JSON has no NaN; it is written as null.
    if value != value:  # noqa: PLR0124 - only NaN is not itself
        return 0
    return min(max(value, 0), MOST_SECONDS)


Seconds = Annotated[float, BeforeValidator(bounded_seconds)]
"""A measured duration in seconds, which always can be added to an instant."""
WholeSeconds = Annotated[int, BeforeValidator(bounded_seconds)]


class Contract(BaseModel):
    """A frozen value that ignores unknown fields.

    An old and a new release can therefore run side by side during an upgrade. The API's own models
    refuse unknown fields instead.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")


class Done(Contract):
    """The empty answer of an effect."""
