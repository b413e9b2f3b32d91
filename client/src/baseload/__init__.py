"""Typed Python client of the baseload control plane."""
