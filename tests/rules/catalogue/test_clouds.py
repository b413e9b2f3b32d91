"""What is believed of a cloud before asking it: the files as they are, and files that lie."""

import copy
import tomllib
from decimal import Decimal
from typing import Any

import pytest

from activities.providers.gcp.catalogue import FACTS, gcp_catalogue
from workflows.rules.catalogue.clouds import CloudCatalogue, read_catalogue


def documents() -> dict[str, Any]:
    return {
        name: tomllib.loads((FACTS / f"{name}.toml").read_text(), parse_float=Decimal)
        for name in ("regions", "machines", "prices")
    }


def changed(file: str, path: list[Any], value: Any) -> CloudCatalogue:
    """The catalogue out of the files with one change."""
    all_of_it = copy.deepcopy(documents())
    place = all_of_it[file]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return read_catalogue(**all_of_it)


def test_the_ten_regions_are_there_with_zones_and_gpus() -> None:
    catalogue = gcp_catalogue()
    assert [region.name for region in catalogue.regions] == [
        "us-central1", "europe-west4", "us-west1", "asia-southeast1", "us-east1", "asia-east1",
        "europe-west1", "us-east4", "asia-northeast1", "asia-northeast3",
    ]  # fmt: skip
    region = catalogue.region("us-east1")
    assert region is not None
    assert region.zones_of("T4") == ("us-east1-b", "us-east1-c", "us-east1-d")
    assert all(len(catalogue.gpu_types_in(one.name)) >= 4 for one in catalogue.regions)


def test_every_gpu_that_a_region_sells_has_machines_and_a_price_there() -> None:
    catalogue = gcp_catalogue()
    for region in catalogue.regions:
        for gpu_type in region.gpu_zones:
            gpu = catalogue.gpu(gpu_type)
            assert gpu is not None
            machine = catalogue.machine_for(gpu_type, 1, spot=True)
            assert machine is not None
            assert machine.cpu_count == gpu.cpus_per_gpu
            price = catalogue.price(machine, region.name)
            assert price is not None
            assert 0 < price.spot_microcredits_per_hour < price.on_demand_microcredits_per_hour


def test_a_price_is_the_machines_and_its_gpus() -> None:
    catalogue = gcp_catalogue()
    machine = catalogue.machine_for("T4", 2, spot=False)
    assert machine is not None
    price = catalogue.price(machine, "us-central1")
    assert price is not None
    ssds = round(2 * 375 * 80_000 / 730)
    assert price.on_demand_microcredits_per_hour == 16 * 47_500 + 2 * 350_000 + ssds
    assert price.region == "us-central1"


def test_a_machine_that_brings_its_ssds_is_not_charged_for_others() -> None:
    catalogue = gcp_catalogue()
    counts = {
        (gpu_type, count): catalogue.ssd_count(gpu_type, count)
        for gpu_type, count in (("T4", 4), ("A100", 16), ("H100", 8), (None, 0))
    }
    assert counts == {("T4", 4): 4, ("A100", 16): 8, ("H100", 8): 0, (None, 0): 0}


def test_every_region_sells_machines_without_gpus_at_a_price_of_its_own() -> None:
    catalogue = gcp_catalogue()
    plain = [machine for machine in catalogue.machines if machine.gpu_type is None]
    assert {machine.series for machine in plain} == {
        "e2-standard", "e2-highmem", "n2-standard", "n2-highmem",
    }  # fmt: skip
    for region in catalogue.regions:
        assert len(region.zones_of(None)) == len(region.zones)
        for machine in plain:
            price = catalogue.price(machine, region.name)
            assert price is not None
            assert price.region == region.name
            assert price.spot_microcredits_per_hour < price.on_demand_microcredits_per_hour


def test_a_gpu_type_sold_as_spot_alone_is_not_sold_on_demand() -> None:
    catalogue = gcp_catalogue()
    assert catalogue.machine_for("H100", 1, spot=False) is None
    spot = catalogue.machine_for("H100", 1, spot=True)
    assert spot is not None
    assert spot.name == "a3-highgpu-1g"


def test_a_newer_line_beats_an_older_one() -> None:
    prices = documents()["prices"]
    newer = {**prices["gpus"][0], "read_on": prices["gpus"][0]["read_on"].replace(year=2027)}
    catalogue = changed("prices", ["gpus"], [{**newer, "spot_usd": Decimal(1)}, *prices["gpus"]])
    machine = catalogue.machine_for(newer["gpu_type"], 1, spot=True)
    assert machine is not None
    price = catalogue.price(machine, "us-central1")
    assert price is not None
    assert 1_000_000 < price.spot_microcredits_per_hour < 1_200_000


@pytest.mark.parametrize(
    ("file", "path", "value", "told"),
    [
        ("prices", ["gpus", 0, "spot_usd"], Decimal(99), "spot 99 is dearer than on demand"),
        ("prices", ["series", 0, "spot_usd_per_cpu"], Decimal(9), "n1-standard in us-central1"),
        ("prices", ["gpus", 0, "colour"], "red", "colour"),
        ("prices", ["gpus", 0, "on_demand_usd"], Decimal(0), "greater than 0"),
        ("prices", ["gpus", 0, "gpu_type"], "A101", "A101"),
        ("prices", ["gpus", 0, "region"], "mars-north1", "mars-north1"),
        ("prices", ["gpus", 0, "source"], "a-friend", "a-friend"),
        ("prices", ["disks", 1, "spot_usd_per_gb_month"], Decimal(1), "local-ssd disk in us-cent"),
        ("prices", ["disks", 0, "disk"], "tape", "tape"),
        ("machines", ["machines", 0, "gpu_count"], 0, "has 0 GPUs of type P100"),
        ("prices", ["reference_region"], "mars-north1", "mars-north1"),
        ("prices", ["currency"], "USD", "prices: currency"),
        ("machines", ["gpus", 0, "gpu_type"], "GTX1", "GTX1"),
        ("machines", ["gpus", 0, "gpu_family"], "NVIDIA_P100", "one of them"),
        ("machines", ["machines", 0, "name"], "custom-12-46080", "is there twice"),
        ("machines", ["machines", 0, "gpu_type"], "RTX4090", "RTX4090"),
        ("regions", ["regions", 0, "gpu_zones", "T4"], ["z"], "has no zone z"),
        ("regions", ["regions", 0, "zones"], [], "zones"),
    ],
)
def test_a_file_that_says_what_cannot_be_is_refused(
    file: str, path: list[Any], value: Any, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        changed(file, path, value)


@pytest.mark.parametrize(
    ("file", "name", "field", "told"),
    [
        ("regions", "regions", "name", "region us-central1: is there twice"),
        ("machines", "gpus", "gpu_type", "GPU type P100: is there twice"),
        ("machines", "machines", "name", "is there twice"),
    ],
)
def test_what_a_file_names_twice_is_refused(file: str, name: str, field: str, told: str) -> None:
    every = documents()[file][name]
    twin = {**every[-1], field: every[0][field]}
    if name == "machines":
        twin = every[0]
    with pytest.raises(ValueError, match=told):
        changed(file, [name], [*every, twin])


def test_two_gpu_types_with_one_accelerator_are_refused() -> None:
    first = documents()["machines"]["gpus"][0]["accelerators"]
    with pytest.raises(ValueError, match=f"accelerator {first[0]}: is there twice"):
        changed("machines", ["gpus", 1, "accelerators"], first)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"series": "z9-standard"}, "series z9-standard: is not in the catalogue"),
        ({"region": "mars-north1"}, "region mars-north1: is not in the catalogue"),
        ({"source": "a-friend"}, "source a-friend: is not in the catalogue"),
    ],
)
def test_a_price_of_what_nobody_knows_is_refused(changes: dict[str, str], told: str) -> None:
    every = documents()["prices"]["series"]
    with pytest.raises(ValueError, match=told):
        changed("prices", ["series"], [*every, every[0] | changes])


def test_a_region_that_sells_an_unknown_gpu_is_refused() -> None:
    with pytest.raises(ValueError, match="GPU type RTX4090: is not in the catalogue"):
        changed("regions", ["regions", 0, "gpu_zones", "RTX4090"], ["a"])


def test_a_region_without_a_price_of_its_own_has_that_of_the_reference_region() -> None:
    prices = documents()["prices"]
    reference = prices["reference_region"]
    elsewhere = "europe-west4"
    assert reference != elsewhere
    catalogue = changed(
        "prices", ["gpus"], [each for each in prices["gpus"] if each["region"] != elsewhere]
    )
    machine = catalogue.machine_for("T4", 1, spot=False)
    assert machine is not None
    own, lent = (each.price(machine, elsewhere) for each in (gcp_catalogue(), catalogue))
    assert own is not None
    assert lent is not None
    assert (own.region, lent.region) == (elsewhere, reference)
    none = changed("prices", ["gpus"], [])
    assert none.price(machine, elsewhere) is None
    without_disks = changed("prices", ["disks"], [])
    assert without_disks.price(machine, elsewhere) is None
    assert without_disks.boot_disk_microcredits_per_gb_month(elsewhere) == 0
    assert none.series_price("z9-standard", elsewhere) is None


def test_a_price_is_as_old_as_its_oldest_line() -> None:
    prices = documents()["prices"]
    old = prices["gpus"][0]["read_on"].replace(year=2020)
    catalogue = changed("prices", ["gpus"], [each | {"read_on": old} for each in prices["gpus"]])
    machine = catalogue.machine_for("T4", 1, spot=False)
    assert machine is not None
    price = catalogue.price(machine, "us-central1")
    assert price is not None
    assert price.read_on == old


def test_a_price_of_a_machine_without_gpus_is_its_cpus_alone() -> None:
    catalogue = gcp_catalogue()
    machine = next(each for each in catalogue.machines if each.gpu_type is None)
    price, line = (
        catalogue.price(machine, "us-central1"),
        catalogue.series_price(machine.series, "us-central1"),
    )
    assert price is not None
    assert line is not None
    hourly = line.on_demand_usd_per_cpu * machine.cpu_count * 1_000_000
    assert price.on_demand_microcredits_per_hour == round(hourly)
    spot = line.spot_usd_per_cpu * machine.cpu_count * 1_000_000
    assert price.spot_microcredits_per_hour == round(spot)
    assert price.read_on == line.read_on


def test_a_region_that_is_not_there_sells_nothing() -> None:
    catalogue = gcp_catalogue()
    assert catalogue.region("mars-north1") is None
    assert catalogue.gpu_types_in("mars-north1") == ()
    assert catalogue.gpu("A101") is None
    assert catalogue.ssd_count("A101", 4) == 0
    assert catalogue.machine_for("A101", 1, spot=True) is None
    region = catalogue.region("us-central1")
    assert region is not None
    assert region.zones_of("A101") == ()


def test_every_number_of_a_machine_and_of_its_disks_is_above_zero() -> None:
    for path in (
        *(["machines", 0, "cpu_count"], ["machines", 0, "memory_gib"]),
        *(["gpus", 0, "cpus_per_gpu"], ["local_ssd", "size_gb"], ["local_ssd", "most"]),
    ):
        with pytest.raises(ValueError, match="greater than 0"):
            changed("machines", path, 0)
    for path in (["gpus", 0, "accelerators"], ["machines", 0, "surprise"]):
        with pytest.raises(ValueError, match=str(path[-1])):
            changed("machines", path, [])
