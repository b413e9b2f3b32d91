"""Whole machines in namespaces of one host, for tests."""
