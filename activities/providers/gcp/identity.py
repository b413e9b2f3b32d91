"""Google's own credentials for a key. Importing this module loads Google's library."""

from google.oauth2 import service_account

from activities.providers.gcp.key import ServiceAccountKey

SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)


class _Elsewhere(service_account.Credentials):
    """Credentials for an endpoint that is not Google's: no request goes to Google."""

    def _is_regional_access_boundary_lookup_required(self) -> bool:
        # Otherwise google-auth sends a request to iamcredentials.googleapis.com with each call.
        return False


def credentials_for(key: ServiceAccountKey, *, asks_google: bool) -> service_account.Credentials:
    """Credentials that get their tokens from the key's `token_uri`."""
    kind = service_account.Credentials if asks_google else _Elsewhere
    made: service_account.Credentials = kind.from_service_account_info(  # type: ignore[no-untyped-call]
        dict(key.document), scopes=SCOPES
    )
    return made
