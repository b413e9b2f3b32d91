"""The limits of a submission: the last value that is accepted, and the first that is not."""

from typing import Any

import pytest

from tests.rules.jobs.submissions import document
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.placement import SpotPolicy
from workflows.rules.jobs import bounds, formats
from workflows.rules.jobs.arrays import jobs_of_array
from workflows.rules.jobs.bounds import out_of_bounds
from workflows.rules.jobs.resources import demand_key, demand_of
from workflows.rules.jobs.shape import rule_of
from workflows.rules.jobs.submission import read_submission


def told(**changes: Any) -> list[tuple[str, str]]:
    return [(one.field, one.rule) for one in read_submission(document(**changes)).mistakes]


def with_value(field: str, value: Any) -> dict[str, Any]:
    """The changes of a document that has this value at a field such as `safety.max_retries`."""
    part, _, name = field.partition(".")
    base: dict[str, Any] = {"gpus": "cpu", "cpu_count": 2} if part == "resources" else {}
    return {part: base | {name: value}} if name else {part: value}


NUMBERS = [
    ("priority", 1, 5, "is 1"),
    ("port", 1024, 65_535, "is 1024 to 65535"),
    ("resources.cpu_count", 1, 4096, "is 1 to 4096"),
    ("resources.disk_size_gb", 10, 2000, "is 10 to 2000"),
    ("resources.max_price_microcredits_per_gpu_hour", 0, 10**12, "is 0 to 1000000000000"),
    ("safety.price_cap_microcredits_per_hour", 0, 10**12, "is 0 to 1000000000000"),
    ("safety.idle_timeout_s", 60, 2_592_000, "is 60 to 2592000"),
    ("safety.max_restarts", 0, 100, "is 0 to 100"),
    ("safety.max_retries", 0, 100, "is 0 to 100"),
    ("safety.max_duration_s", 60, 31_536_000, "is 60 to 31536000"),
]


@pytest.mark.parametrize(("field", "least", "most", "rule"), NUMBERS, ids=[n[0] for n in NUMBERS])
def test_a_number_is_accepted_at_its_limits_and_not_beyond(
    field: str, least: int, most: int, rule: str
) -> None:
    for value in (least, most):
        assert told(**with_value(field, value)) == []
    for value in (least - 1, most + 1):
        ((at, why),) = told(**with_value(field, value))
        assert at == field
        assert why.startswith(rule)


def test_memory_is_above_nothing_and_at_most_64_tib() -> None:
    for gib in (0.001, 65_536):
        assert told(**with_value("resources.memory_gib", gib)) == []
    for gib in (0, -1, 65_536.5):
        refused = [("resources.memory_gib", "is above 0, at most 65536")]
        assert told(**with_value("resources.memory_gib", gib)) == refused


def test_a_worker_has_one_to_64_gpus() -> None:
    for count in (1, 64):
        assert told(resources={"gpus": f"A100:{count}"}) == []
        assert told(resources={"gpu_types": ["A100"], "gpu_count": count}) == []
    for count in (0, 65):
        refused = told(resources={"gpus": f"A100:{count}"})
        assert refused == [("resources.gpus", "COUNT is 1 to 64")]
        refused = told(resources={"gpu_types": ["A100"], "gpu_count": count})
        assert refused == [("resources.gpu_count", "is 1 to 64")]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"workers": [{"command": " "}]}, "is not empty"),
        ({"workers": [{"command": "a\0"}]}, "is at most 65536 characters, none of them NUL"),
        ({"workers": []}, "has at least one worker"),
        ({"type": "inference", "workers": [{"command": "a"}] * 2}, "is exactly one for inference"),
        ({"port": 80, "reservation_id": "rsv-1"}, "is 1024 to 65535"),
        ({"type": "notebook"}, "is needed: notebook listens on one"),
        ({"data": {"datasets": ["d"]}}, "is the id of a dataset, dat-…"),
        ({"data": {"datasets": ["dat-1", "dat-1"]}}, "is named once"),
        ({"type": "inference", "data": {"datasets": ["dat-1"]}}, "are not for inference"),
        (
            {"data": {"volumes": [{"id": "vol-1", "access": "read"}]}},
            "are for notebooks and endpoints",
        ),
        (
            {
                "type": "endpoint",
                "port": 8080,
                "data": {"volumes": [{"id": "dat-1", "access": "write"}]},
            },
            "is the id of a volume, vol-…",
        ),
        (
            {
                "type": "endpoint",
                "port": 8080,
                "data": {
                    "volumes": [{"id": "vol-1", "access": each} for each in ("read", "write")]
                },
            },
            "is named once",
        ),
        (
            {
                "type": "endpoint",
                "port": 8080,
                "data": {
                    "volumes": [{"id": f"vol-{each}", "access": "read"} for each in range(17)]
                },
            },
            "are at most 16",
        ),
        ({"data": {"checkpoints": ["dat-1"]}}, "is the id of a checkpoint, chk-…"),
        ({"data": {"model": {"id": "chk-1"}}}, "is the id of a model, mod-…"),
        (
            {"data": {"model": {"id": "mod-1", "project_id": "prj-2"}}},
            "is the job's own project; POST /v1/federated-jobs takes a model of another one",
        ),
        (
            {"data": {"input": {"type": "ftp"}}},
            "is one of local, regional, dataset, model, checkpoint, job, web, git,",
        ),
        (
            {"data": {"input": {"type": "gcp", "bucket": "sets", "upload_id": "upl-1"}}},
            "is not for gcp",
        ),
        ({"data": {"input": {"type": "web"}}}, "is needed for web"),
        (
            {"data": {"input": {"type": "dataset", "id": "mod-1"}}},
            "is the id of a dataset, dat-…",
        ),
        ({"data": {"input": {"type": "model"}}}, "is needed for model: the id of a model, mod-…"),
        ({"data": {"input": {"type": "local"}}}, "is needed for local: the id of an upload, upl-…"),
        ({"data": {"input": {"type": "local", "upload_id": "x"}}}, "is the id of an upload, upl-…"),
        (
            {"data": {"output": {"type": "ftp"}}},
            "is one of local, regional, aws, wasabi, gcp, azure, git,",
        ),
        ({"data": {"output": {"type": "gcp"}}}, "is needed for gcp"),
        ({"data": {"output": {"type": "local", "upload_id": "upl-1"}}}, "is not for local"),
        (
            {"environment": {"image": "a:1", "apt_packages": ["ffmpeg"]}},
            "are not installed into an image",
        ),
        (
            {"environment": {"variables": {"A": "1"}, "secrets": {"A": "token"}}},
            "has no name that variables also has",
        ),
        ({"environment": {"requirements": "a.txt"}}, "is a file of the code, and the job has none"),
        ({"environment": {"setup": ["a\0"]}}, "is a command, without NUL"),
        ({"placement": {"providers": []}}, "has at least one, or is left out"),
        ({"placement": {"providers": ["a\0"]}}, "is the id or the name of a provider, or one of"),
        ({"placement": {"providers": ["a", "a"]}}, "is named once"),
        ({"array": [{"A": "1"}], "environment": {"secrets": {"A": "token"}}}, "has no name that"),
    ],
)
def test_a_refusal_says_which_rule_was_broken(changes: dict[str, Any], rule: str) -> None:
    ((_, why),) = told(**changes)
    assert why.startswith(rule)


@pytest.mark.parametrize(
    "changes",
    [
        {"project_id": "prj-1"},
        {"code": {"upload_id": "upl-1"}},
        {"placement": {"region_id": "reg-1", "providers": ["prv-1", "gcp", "physical"]}},
        {"data": {"input": {"type": "local", "upload_id": "upl-1"}, "output": {"type": "local"}}},
        {"data": {"output": None}},
        {"type": "notebook", "port": 8888, "workers": [{"command": "jupyter"}]},
        {"environment": {"image": "a:1"}, "port": 5000},
        {"environment": {"apt_packages": ["ffmpeg"], "secrets": {"A": "token", "B": "c"}}},
    ],
)
def test_what_breaks_no_rule_is_accepted(changes: dict[str, Any]) -> None:
    assert told(**changes) == []


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({"priority": "soon"}, "soon"),
        ({"port": 1.5}, 1.5),
        ({"port": "x"}, "x"),
        ({"environment": {"image": True}}, True),
        ({"environment": {"image": ["a"]}}, None),
        ({"environment": {"variables": {"A": ["secret"]}}}, None),
        ({"environment": {"secrets": {"A": ["secret"]}}}, None),
        ({"name": None}, None),
    ],
)
def test_a_wrong_shape_is_told_with_its_value_unless_it_may_be_a_secret(
    changes: dict[str, Any], value: Any
) -> None:
    (mistake,) = read_submission(document(**changes)).mistakes
    assert mistake.value == value


def test_a_fault_that_has_no_words_of_ours_is_told_in_the_librarys() -> None:
    told = {"type": "too_odd", "loc": ("name",), "msg": "Value is too odd", "input": "x"}
    assert rule_of(JobSubmission, told) == "value is too odd"


# ── bounds of documents ─────────────────────────────────────────────────────────────────────────


def _at(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """A document of nothing but this value at its path, where 0 is the item of a list."""
    for step in reversed(path):
        value = [value] if step == 0 else {step: value}
    assert isinstance(value, dict)
    return value


def nested(depth: int) -> Any:
    return [] if depth == 1 else [nested(depth - 1)]


@pytest.mark.parametrize(
    ("inside", "beyond", "rule"),
    [
        ({"x": "a" * 200}, {"x": "a" * 201}, "is at most 200 characters"),
        ({"x": 2**63}, {"x": 2**63 + 1}, "lies between -9223372036854775808 and"),
        ({"x": -(2**63)}, {"x": -(2**63) - 1}, "lies between -9223372036854775808 and"),
        ({"x": [0] * 64}, {"x": [0] * 65}, "has at most 64 items"),
        ({"workers": [0] * 256}, {"workers": [0] * 257}, "has at most 256 items"),
        ({"array": [0] * 1000}, {"array": [0] * 1001}, "has at most 1000 items"),
        (
            {"x": {str(each): 0 for each in range(256)}},
            {"x": {str(each): 0 for each in range(257)}},
            "has at most 256 names",
        ),
        ({"x": {"a" * 256: 0}}, {"x": {"a" * 257: 0}}, "has names of at most 256 characters"),
        ({"x": nested(7)}, {"x": nested(8)}, "is nested at most 8 deep"),
        (
            {"workers": [{"command": "a" * 65_536}]},
            {"workers": [{"command": "a" * 65_537}]},
            "is at most 65536 characters",
        ),
        (
            {"environment": {"variables": {"A": "a" * 131_072}}},
            {"environment": {"variables": {"A": "a" * 131_073}}},
            "is at most 131072 characters",
        ),
        (
            {"environment": {"image": "a" * 255}},
            {"environment": {"image": "a" * 256}},
            "is at most 255 characters",
        ),
        ({"array": [{"A": "a" * 4096}]}, {"array": [{"A": "a" * 4097}]}, "is at most 4096 char"),
        *(
            (_at(path, "a" * most), _at(path, "a" * (most + 1)), f"is at most {most} characters")
            for path, most in (
                (("resources", "gpu_types", 0), 100),
                (("environment", "python_packages", 0), 100),
                (("environment", "apt_packages", 0), 100),
                (("environment", "setup"), 8192),
                (("environment", "setup", 0), 8192),
            )
        ),
        *(
            (_at(path, [0] * most), _at(path, [0] * (most + 1)), f"has at most {most} items")
            for path, most in ((("resources", "gpu_types"), 16), (("environment", "setup"), 16))
        ),
    ],
)
def test_a_bound_holds_the_last_value_and_refuses_the_next(
    inside: dict[str, Any], beyond: dict[str, Any], rule: str
) -> None:
    assert out_of_bounds(inside) == ()
    (mistake,) = out_of_bounds(beyond)
    assert mistake.rule.startswith(rule)


def test_the_values_of_a_document_are_4096_with_itself() -> None:
    rows = [[0] * 63] * 63
    values = {"a": rows, "b": [0] * 61}
    assert out_of_bounds(values) == ()
    (mistake,) = out_of_bounds(values | {"c": 0})
    assert (mistake.field, mistake.rule) == ("job", "has at most 4096 values")


def test_a_hundred_mistakes_are_told_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bounds._MAX_MISTAKES == 100
    long = {str(each): "a" * 201 for each in range(150)}
    assert len(out_of_bounds(long)) == 100
    assert out_of_bounds({"a": {"b": "a" * 201}})[0].field == "a.b"


# ── formats ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("is_sound", "sound", "unsound"),
    [
        (formats.is_name, ["a", "a b", "é" * 100], ["", "a" * 101, " a", "a ", "a\tb"]),
        (
            formats.is_variable_name,
            ["A", "_", "a1", "A" * 256, "XBASELOAD_A", "BASELOAD"],
            ["", "1A", "A-B", "A" * 257, "BASELOAD_A", "baseload_a"],
        ),
        (formats.is_python_requirement, ["a" * 100], ["", "a" * 101, "-r a", "a @ b"]),
        (formats.is_apt_package, ["ab", "a" * 200, "g++"], ["a", "a" * 201, "A", "a-", "a=1"]),
        (
            formats.is_requirements_file,
            ["a/b.txt", "uv.lock", "a" * 196 + ".txt"],
            ["", "/a.txt", "a//b.txt", "../a.txt", "./a.txt", "a\\b.txt", "a\n.txt", "a.cfg",
             "a" * 197 + ".txt", "a.txt/uv.toml"],
        ),
        (formats.is_image, ["a", "a" * 255, "h:1/a/b:t"], ["", "a" * 256, "-a", "a b", "A"]),
        (
            formats.is_secret_reference,
            ["token", "a" * 100, "store://projects/prj-1/a.b"],
            ["", "a" * 101, "store://providers/x/y", "store://projects/prj-1/", ".a"],
        ),
    ],
)  # fmt: skip
def test_a_format_takes_the_longest_and_refuses_what_it_does_not_know(
    is_sound: Any, sound: list[str], unsound: list[str]
) -> None:
    assert [text for text in sound if not is_sound(text)] == []
    assert [text for text in unsound if is_sound(text)] == []


def test_a_secret_by_its_name_alone_is_of_the_jobs_project() -> None:
    whole = "store://projects/prj-1/token"
    assert formats.secret_reference("prj-1", "token") == whole
    assert formats.secret_reference("prj-2", whole) == whole
    assert formats.project_of_secret(whole) == "prj-1"
    assert formats.project_of_secret("token") is None


# ── what placement is asked ─────────────────────────────────────────────────────────────────────


def test_a_demand_says_all_that_a_submission_asks_of_placement() -> None:
    asked = read_submission(
        document(
            resources={
                "gpus": "A100:4", "cpu_count": 8, "memory_gib": 2, "disk_size_gb": 20,
                "max_price_microcredits_per_gpu_hour": 7,
            },
            environment={"apt_packages": ["ffmpeg"]},
            workers=[{"command": "true"}] * 2,
            placement={"region_id": "reg-1", "providers": ["gcp"], "only_owned": True},
            safety={"price_cap_microcredits_per_hour": 9},
            port=5000,
        )
    ).submission  # fmt: skip
    assert asked is not None
    demand = demand_of(asked, "acc-1")
    assert (demand.gpu_types, demand.gpu_count, demand.cpu_count) == (("A100",), 4, 8)
    assert (demand.memory_bytes, demand.disk_size_gb) == (2 * 2**30, 20)
    assert demand.max_price_microcredits_per_gpu_hour == 7
    assert (demand.account_id, demand.worker_count, demand.port) == ("acc-1", 2, 5000)
    assert (demand.region_id, tuple(demand.providers), demand.only_owned) == (
        "reg-1", ("gcp",), True,
    )  # fmt: skip
    assert (demand.needs_image, demand.needs_apt_packages) == (False, True)
    assert (demand.price_cap_microcredits_per_hour, demand.spot) == (9, SpotPolicy.ALLOWED)
    in_image = read_submission(document(environment={"image": "a:1"})).submission
    assert in_image is not None
    plain = demand_of(in_image, "acc-1")
    assert (plain.needs_image, plain.needs_apt_packages, plain.only_owned) == (True, False, False)
    assert (plain.gpu_count, plain.cpu_count, plain.region_id) == (0, 2, None)
    assert len(demand_key(asked, "acc-1")) == 32
    keys = {demand_key(asked, "acc-1"), demand_key(asked, "acc-2"), demand_key(in_image, "acc-1")}
    assert len(keys) == 3


def test_a_job_that_asks_for_gpus_alone_gets_cpus_by_its_placement() -> None:
    asked = read_submission(document(resources={"gpus": "A100"})).submission
    assert asked is not None
    assert (demand_of(asked, "acc-1").gpu_count, demand_of(asked, "acc-1").cpu_count) == (1, 0)


def test_a_stored_submission_without_cpus_and_memory_has_one_cpu() -> None:
    stored = JobSubmission.model_validate(document(resources={"gpus": "cpu"}))
    asked = demand_of(stored, "acc-1")
    assert (asked.cpu_count, asked.memory_bytes) == (1, 0)


def test_a_submission_that_is_no_array_is_its_own_only_job() -> None:
    asked = read_submission(document()).submission
    assert asked is not None
    assert jobs_of_array(asked) == (asked,)
