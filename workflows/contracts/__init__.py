"""Contracts: the frozen models, enums and constants that all layers share."""
