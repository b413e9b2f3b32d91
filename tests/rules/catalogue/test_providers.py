"""The traits of provider kinds, which rules and workflows go by."""

from dataclasses import replace

from workflows.contracts.statuses import ProviderKind
from workflows.rules.catalogue.providers import (
    NO_TRAITS,
    TRAITS,
    catalogued_kinds,
    cloud_kinds,
    longest_ending_s,
    preemption_notices_s,
    rented_kinds,
    traits_of,
)

DAY_S = 86_400


def test_an_owners_machines_need_nothing_and_are_never_preempted() -> None:
    assert traits_of(ProviderKind.PHYSICAL) == replace(NO_TRAITS, has_own_networks=True)
    assert not NO_TRAITS.is_cloud
    assert (NO_TRAITS.preemption_notice_s, NO_TRAITS.image_disk_gb) == (None, 0)
    assert NO_TRAITS.lifetime_limit_s == 365 * DAY_S


def test_a_kind_that_is_not_available_has_the_defaults() -> None:
    assert traits_of("moon") is NO_TRAITS


def test_google_tells_30_s_before_it_preempts_and_ends_machines_after_120_days() -> None:
    traits = traits_of(ProviderKind.GCP)
    assert traits.is_cloud
    assert (traits.preemption_notice_s, traits.image_disk_gb) == (30, 50)
    assert traits.lifetime_limit_s == 120 * DAY_S


def test_a_machine_at_google_has_ended_after_its_shutdown_period() -> None:
    assert traits_of(ProviderKind.GCP).ending_limit_s == longest_ending_s() == 90
    assert NO_TRAITS.ending_limit_s == 0, "an owner's machine is not ended by anybody"


def test_only_clouds_that_preempt_count_for_the_notices() -> None:
    rented = ("runpod", "vastai", "local", "colab")
    assert cloud_kinds() == ("gcp", *rented)
    assert (catalogued_kinds(), rented_kinds()) == (("gcp",), rented)
    told = [each.preemption_notice_s for each in TRAITS.values() if each.preemption_notice_s]
    assert preemption_notices_s() == (min(told), max(told))
