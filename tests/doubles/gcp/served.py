"""Every method that the double answers, by its id in Google's documents."""

from tests.doubles.gcp import places, platform, quota, sinks
from tests.doubles.gcp.calls import Handler
from tests.doubles.gcp.discovery import surface

HANDLERS: dict[str, Handler] = {**platform.serves, **places.serves, **quota.serves, **sinks.serves}
SURFACE = surface(HANDLERS)
