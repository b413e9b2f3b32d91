"""Sources of artifacts: each gives a tar stream, which is checked and stored as it is read."""
