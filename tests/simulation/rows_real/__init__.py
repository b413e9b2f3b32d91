"""The rows as they really are: the activities and the services of the API on SQLite in memory."""

from tests.simulation.rows_real.rows import RealRows

__all__ = ["RealRows"]
