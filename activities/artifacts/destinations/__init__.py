"""Destinations of outputs: one file for each kind of place that a stored output is sent to."""
