"""A rental offer is read again before a machine is rented by it, because offers are hearsay.

The row of the offer is the cache: an offer that was read a moment ago is not read again, whichever
lease has asked for it. What is found replaces the row, so that placement compares the price of now,
and does not choose again what is gone.
"""

import threading
from collections import defaultdict
from datetime import UTC, datetime, timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.db.session import database
from activities.providers.base import CapacityExhausted, RequestRefused, Unavailable
from activities.providers.registry import kind_of
from activities.providers.rental_offers import KnownOffer, keep_offer, known_offer
from activities.settings import settings
from workflows.contracts.billing import disk_microcredits_per_hour, hourly
from workflows.contracts.errors import PRICE_CAP
from workflows.contracts.machines import RentalOffer
from workflows.effects.machines import CreateMachine

_reading: defaultdict[tuple[str, str], threading.Lock] = defaultdict(threading.Lock)
"""A lock for each offer, so that many leases at once read it once."""


def confirm_offer(command: CreateMachine) -> None:
    """Confirm that the marketplace still sells the offer, below the price cap. Blocking.

    What cannot be read now is not confirmed, and its creation decides.
    Raises: CapacityExhausted, when it is not sold any more; ApplicationError `PriceCap`.
    """
    offer, kind = command.offer, kind_of(command.provider_kind)
    if kind.offer is None or not offer.provider_offer_id:
        return
    with _reading[command.provider_id, offer.scope]:
        known = _known(command)
        if known is None or _is_old(known.read_at):
            try:
                found = kind.offer(command.provider_id, offer)
            except (Unavailable, RequestRefused) as error:
                activity.logger.warning("%s: offer not read: %s", command.machine_name, error)
                return
            known = _keep(command, found)
    if known is None:
        raise CapacityExhausted(
            f"offer {offer.provider_offer_id} of {offer.gpu_count}×{offer.gpu_type or 'CPU'} in "
            f"{offer.zone or 'any zone'} is not offered any more"
        )
    _raise_if_too_dear(command, known.offer)


def _raise_if_too_dear(command: CreateMachine, now: RentalOffer) -> None:
    """Raises: ApplicationError `PriceCap`, with both prices."""
    cap = command.price_cap_microcredits_per_hour
    price = now.machine.microcredits_per_hour + disk_microcredits_per_hour(
        command.spec.disk_size_gb, now.disk_microcredits_per_gb_month
    )
    if cap is None or price <= cap:
        return
    raise ApplicationError(
        f"{command.machine_name}: costs {hourly(price)} now and cost "
        f"{hourly(command.offer.microcredits_per_hour)} when it was chosen, the cap is "
        f"{hourly(cap)}",
        type=PRICE_CAP,
        non_retryable=True,
    )


def _is_old(read_at: datetime) -> bool:
    valid = timedelta(seconds=settings().rental_offer_valid_s)
    return datetime.now(UTC) - read_at > valid


def _known(command: CreateMachine) -> KnownOffer | None:
    with database().read() as session:
        return known_offer(session, command.provider_id, command.offer.scope)


def _keep(command: CreateMachine, found: RentalOffer | None) -> KnownOffer | None:
    now = datetime.now(UTC)
    with database().write(f"offer of {command.provider_id}") as session:
        keep_offer(session, command.provider_id, command.offer.scope, found, now)
    return None if found is None else KnownOffer(found, now)
