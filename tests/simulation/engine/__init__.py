"""Temporal and its worker processes in virtual time: see README.md."""
