"""The API with a database behind it, for the refusals that the story expects."""

from tests.api.conftest import app, dialect, site, stores

__all__ = ["app", "dialect", "site", "stores"]
