"""Google Cloud, as the activities of the cloud queues meet it."""

from tests.simulation.outside.clouds.clouds import Clouds

__all__ = ["Clouds"]
