"""What the key of a provider is asked for: the checks of its project, and Google's prices."""

from collections.abc import Mapping

from temporalio.exceptions import ApplicationError

from activities.providers.base import RequestRefused, Unavailable
from activities.providers.cloud_parts import translated_errors as for_workflows
from activities.providers.gcp.catalogue import gcp_catalogue
from activities.providers.gcp.errors import GoogleRefusedError, KeyRefusedError
from activities.providers.gcp.project import translated_errors as of_google
from tests.simulation.contracts import (
    Attempt,
    NotFound,
    Rows,
    Steps,
    Temporal,
)
from tests.simulation.contracts import (
    Unavailable as ServerUnavailable,
)
from tests.simulation.outside.clouds.faults import Asking, Call, Requests
from workflows.contracts.lifecycles import workflow_id_of
from workflows.contracts.providers import Check, PricesState
from workflows.effects.providers import (
    CheckProvider,
    OffersRefreshed,
    PricesRefreshed,
    ProviderChecked,
    RefreshOffers,
    RefreshPrices,
)

CHECKS = ("project", "billing", "roles", "gpus", "image")
"""One request each, after that for the key, as gcp/checks.py:check_project."""


class Checks:
    """The effects `check_cloud`, `refresh_prices` and `refresh_offers`."""

    rows: Rows

    def __init__(self, temporal: Temporal, requests: Requests) -> None:
        self._temporal = temporal
        self._requests = requests

    @property
    def effects(self) -> Mapping[str, Call]:
        return {
            "check_cloud": self.check_cloud,
            "refresh_prices": self.refresh_prices,
            "refresh_offers": self.refresh_offers,
        }

    def check_cloud(self, attempt: Attempt, command: CheckProvider) -> Steps:
        """A key that is missing or refused, and what it may not read, are failed checks.

        Raises: Unavailable, when Google does not answer.
        """
        provider_id = command.provider_id
        if mistake := self._requests.key_mistake(provider_id):
            return ProviderChecked(checks=(_failed("key", mistake),))
        with for_workflows(), of_google():
            try:
                yield from self._ask(provider_id, "token")
            except (KeyRefusedError, GoogleRefusedError) as refusal:
                return ProviderChecked(checks=(_failed("key", str(refusal)),))
            found = [Check(name="key", status="passed")]
            for name in CHECKS:
                try:
                    yield from self._ask(provider_id, name)
                except GoogleRefusedError as refusal:
                    found.append(_failed(name, f"cannot be read: {refusal.message}"))
                else:
                    found.append(Check(name=name, status="passed"))
        return ProviderChecked(checks=tuple(found))

    def refresh_prices(self, attempt: Attempt, command: RefreshPrices) -> Steps:
        """As activities/providers/price_refresh.py; Google's prices are those of our files.

        Raises: Unavailable, when Google does not answer.
        """
        refused: list[str] = []
        for provider_id in self.rows.ready_providers(command.provider_kind):
            try:
                with of_google():
                    self._requests.need_key(provider_id)
                    yield from self._ask(provider_id, "prices")
            except RequestRefused as error:
                refused.append(f"{provider_id}: {error}")
                self._notify(provider_id, f"they cannot be read: {error}")
            except Unavailable as error:
                raise ApplicationError(
                    f"{provider_id}: prices: {error}", type=error.kind
                ) from error
            else:
                self._notify(provider_id, "")
                files = gcp_catalogue()
                kept = len((*files.series_prices, *files.gpu_prices, *files.disk_prices))
                return PricesRefreshed(kept=kept, refused=tuple(refused))
        return PricesRefreshed(refused=tuple(refused))

    def refresh_offers(self, attempt: Attempt, command: RefreshOffers) -> Steps:
        """As activities/providers/offer_refresh.py; Google sells by a catalogue."""
        yield from ()
        return OffersRefreshed()

    def _ask(self, provider_id: str, what: str) -> Asking[None]:
        return self._requests.read(provider_id, f"{what} of {provider_id}", lambda: None)

    def _notify(self, provider_id: str, trouble: str) -> None:
        """Signal the trouble; the next refresh repeats a signal that has failed."""
        try:
            self._temporal.signal(
                workflow_id_of(provider_id), "prices_state", PricesState(trouble=trouble)
            )
        except (NotFound, ServerUnavailable) as cause:
            self._temporal.note(provider_id, f"was not told of its prices: {cause!r}")


def _failed(name: str, detail: str) -> Check:
    return Check(name=name, status="failed", detail=detail, fix="give the provider a key again")
