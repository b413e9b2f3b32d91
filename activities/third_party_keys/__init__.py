"""Third-party keys of projects: read from what a person gives, sealed, and given to runs."""
