"""Vast.ai, for tests and the demonstration."""
