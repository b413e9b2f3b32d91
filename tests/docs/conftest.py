"""The API with a database behind it, for those who type what the runbooks say."""

from tests.api.conftest import app, dialect, site, stores

__all__ = ["app", "dialect", "site", "stores"]
