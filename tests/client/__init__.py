"""What users install: the client and the `baseload` command, against the real API."""
