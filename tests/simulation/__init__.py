"""The simulator: the workflows' own code, on a modelled Temporal and world, in virtual time."""
