"""The rows of an installation as a model in dictionaries."""

from tests.simulation.rows_model.connection import ProcessDied
from tests.simulation.rows_model.model import ModelRows

__all__ = ["ModelRows", "ProcessDied"]
