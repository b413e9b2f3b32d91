"""The simulator: the workflows' own code, on a modelled Temporal and world, in virtual time."""

import os

from tests.simulation.defects import VARIABLE, plant

if planted := os.environ.get(VARIABLE):  # Before any module of the product is imported.
    plant(planted)
