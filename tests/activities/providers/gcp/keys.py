"""Keys of the double's service accounts, as a person would have them."""

import json
from typing import Any

from activities.providers.gcp.session import GoogleSession, session_for
from tests.doubles.gcp.access import PROVIDER_ROLES
from tests.doubles.gcp.double import GcpDouble, service_account_key

EVERY_ROLE = (*PROVIDER_ROLES, "roles/cloudquotas.viewer")
"""What we ask for, and what helps."""


def key_file(double: GcpDouble, **wanted: Any) -> str:
    """The content of a downloaded key; of an account with every role, unless others are named."""
    return json.dumps(service_account_key(double, **({"roles": EVERY_ROLE} | wanted)), indent=2)


def session_with(double: GcpDouble, **wanted: Any) -> GoogleSession:
    """A session with a new key of the double."""
    return session_for(key_file(double, **wanted), double.url)
