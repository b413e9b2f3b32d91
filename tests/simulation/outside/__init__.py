"""The world outside: machines with processes, clouds, the object store."""

from tests.simulation.outside.world import World

__all__ = ["World"]
