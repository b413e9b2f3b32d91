"""Measurements. They assert nothing; `make bench` prints one table."""
