"""The simulator: the workflows' own code on a model of Temporal and of the world, in virtual time."""
