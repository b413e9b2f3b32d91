"""Tests of third-party keys: how they are read, sealed, and given to runs."""
