"""Google's own credentials for a key. Importing this costs what Google's library costs."""

from google.oauth2 import service_account

from activities.providers.gcp.key import ServiceAccountKey

SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)


class _Elsewhere(service_account.Credentials):
    """For an endpoint that is not Google's: nothing of it is told to Google."""

    def _is_regional_access_boundary_lookup_required(self) -> bool:
        # Else google-auth asks iamcredentials.googleapis.com beside each request.
        return False


def credentials_for(key: ServiceAccountKey, *, asks_google: bool) -> service_account.Credentials:
    """Credentials that get their tokens where the key says."""
    kind = service_account.Credentials if asks_google else _Elsewhere
    made: service_account.Credentials = kind.from_service_account_info(  # type: ignore[no-untyped-call]
        dict(key.document), scopes=SCOPES
    )
    return made
