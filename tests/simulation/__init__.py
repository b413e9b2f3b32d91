"""The simulator: the workflows' own code, on a modelled Temporal and world, in virtual time."""

import os

if planted := os.environ.get("BASELOAD_SIMULATED_DEFECT"):
    from tests.simulation.defects import plant

    plant(planted)  # Before any module of the product is imported.
