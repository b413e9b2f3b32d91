"""A submission's rules: each one broken alone, and all of them at once."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rules.jobs.submissions import document
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.statuses import JobType
from workflows.rules.jobs.arrays import jobs_of_array
from workflows.rules.jobs.formats import full_image, is_image
from workflows.rules.jobs.resources import resources_of, spot_policy_of
from workflows.rules.jobs.submission import read_submission

SERVICE = {"type": "notebook", "port": 8888}


def fields(job: Any, known: tuple[str, ...] = ()) -> list[str]:
    return sorted(mistake.field for mistake in read_submission(job, known).mistakes)


def test_an_array_is_a_job_for_each_number_with_its_parameters_as_variables() -> None:
    made = document(
        environment={"variables": {"LR": "1", "EPOCHS": "20"}}, array=[{"LR": 0.1}, {"FAST": True}]
    )
    read = read_submission(made).submission
    assert read is not None
    jobs = jobs_of_array(read)
    assert [(job.name, job.array) for job in jobs] == [("digits-0", None), ("digits-1", None)]
    own = {"EPOCHS": "20", "BASELOAD_ARRAY_SIZE": "2"}
    assert [job.environment.variables for job in jobs] == [
        own | {"LR": "0.1", "BASELOAD_ARRAY_INDEX": "0"},
        own | {"LR": "1", "FAST": "true", "BASELOAD_ARRAY_INDEX": "1"},
    ]
    counted = read_submission(document(array=1000)).submission
    assert counted is not None
    assert jobs_of_array(counted)[-1].name == "digits-999"


NO_ARRAYS: tuple[Any, ...] = (0, 1001, -1, True, "ten", [], [{}] * 1001, 10**30)


@pytest.mark.parametrize(
    ("array", "field"),
    [
        *((wrong, "array") for wrong in NO_ARRAYS),
        ([{"BASELOAD_X": "1"}], "array.0"),
        ([{}, {"no name": "1"}], "array.1"),
        ([3], "array.0"),
        ([{"A": [1]}], "array.0.A"),
        ([{"A": "\0"}], "array.0.A"),
    ],
)
def test_an_array_that_cannot_be_is_refused_once(array: Any, field: str) -> None:
    assert fields(document(array=array)) == [field]


@pytest.mark.parametrize(
    ("job", "field"),
    [
        ({"workers": ["python train.py"]}, "workers.0"),
        ({"workers": [["a"]]}, "workers.0"),
        ({"resources": "A100:1"}, "resources"),
        ({"resources": {"gpus": ["A100"]}}, "resources.gpus"),
        ({"resources": {"gpu_types": "A100", "gpu_count": 1}}, "resources.gpu_types"),
        ({"resources": {"gpu_types": [3], "gpu_count": 1}}, "resources.gpu_types.0"),
        ({"placement": {"providers": [1]}}, "placement.providers.0"),
        ({"environment": {"python_packages": [["a"]]}}, "environment.python_packages.0"),
        ({"environment": {"variables": {"A": [1]}}}, "environment.variables.A"),
        ({"environment": {"setup": {"a": "b"}}}, "environment.setup"),
        ({"code": 3, "environment": {"requirements": "a.txt"}}, "code"),
    ],
)
def test_a_value_of_a_wrong_shape_is_refused_once(job: dict[str, Any], field: str) -> None:
    assert fields(document(**job)) == [field]


def test_an_item_of_a_wrong_shape_leaves_the_numbers_of_the_others() -> None:
    assert fields(document(workers=["a", {"command": ""}])) == ["workers.0", "workers.1.command"]


def test_a_name_of_an_array_leaves_room_for_its_numbers() -> None:
    assert fields(document(name="n" * 97, array=1000)) == ["name"]
    assert fields(document(name="n" * 97)) == []


def test_the_documented_job_is_sound() -> None:
    documented: dict[str, Any] = {
        "name": "digits",
        "type": "training",
        "project_id": None,
        "resources": {
            "gpus": "A100:4",
            "gpu_types": None,
            "gpu_count": None,
            "cpu_count": 4,
            "memory_gib": 8,
            "disk_size_gb": 10,
            "max_price_microcredits_per_gpu_hour": 10_000_000,
        },
        "environment": {
            "image": None,
            "python_packages": ["scikit-learn"],
            "apt_packages": [],
            "requirements": "deps/requirements.txt",
            "setup": ["pip install -e .", "make data"],
            "variables": {"EPOCHS": "20"},
            "secrets": {"HF_TOKEN": "store://projects/prj-01abc/hf_token"},
        },
        "code": {"upload_id": "upl-01abc"},
        "data": {
            "datasets": [],
            "model": None,
            "checkpoints": [],
            "volumes": [],
            "input": None,
            "output": {"type": "local"},
        },
        "workers": [{"command": "python train.py"}],
        "placement": {"region_id": None, "providers": None, "only_owned": None},
        "safety": {
            "price_cap_microcredits_per_hour": None,
            "auto_terminate": False,
            "idle_timeout_s": 600,
        },
        "port": None,
        "reservation_id": None,
        "priority": 3,
    }
    reading = read_submission(documented)
    assert reading.mistakes == ()
    assert reading.submission is not None
    asked = resources_of(reading.submission)
    assert (asked.gpu_types, asked.gpu_count, asked.memory_bytes) == (("A100",), 4, 8 * 1024**3)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": " x"}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"priority": 0}, "priority"),
        ({"priority": 6}, "priority"),
        ({"project_id": "acc-1"}, "project_id"),
        ({"code": {"upload_id": "../x"}}, "code.upload_id"),
        ({"resources": {"gpus": "cpu"}}, "resources.cpu_count"),
        ({"resources": {"cpu_count": 2, "gpu_count": 1}}, "resources.gpu_count"),
        ({"resources": {"gpus": "cpu", "cpu_count": 2, "gpu_count": 1}}, "resources.gpu_count"),
        ({"resources": {"gpu_types": ["A100"]}}, "resources.gpu_count"),
        ({"resources": {"gpu_types": ["A100"], "gpu_count": 0}}, "resources.gpu_count"),
        ({"resources": {"gpus": "A100:4", "gpu_types": ["A100"]}}, "resources.gpu_types"),
        ({"resources": {"gpus": "A100:0"}}, "resources.gpus"),
        ({"resources": {"gpus": "A100:9999"}}, "resources.gpus"),
        ({"resources": {"gpus": "A100:two"}}, "resources.gpus"),
        ({"resources": {"gpus": "A1OO:2"}}, "resources.gpus"),
        ({"resources": {"gpu_types": ["A100", "B52"], "gpu_count": 1}}, "resources.gpu_types.1"),
        ({"resources": {"gpus": "cpu", "cpu_count": 0}}, "resources.cpu_count"),
        ({"resources": {"cpu_count": 2, "memory_gib": 0}}, "resources.memory_gib"),
        ({"safety": {"max_retries": -1}}, "safety.max_retries"),
        ({"safety": {"max_retries": 101}}, "safety.max_retries"),
        ({"safety": {"max_duration_s": 59}}, "safety.max_duration_s"),
        ({"safety": {"max_duration_s": 31_536_001}}, "safety.max_duration_s"),
        ({"resources": {"cpu_count": 2, "memory_gib": float("nan")}}, "resources.memory_gib"),
        ({"resources": {"cpu_count": 2, "disk_size_gb": 9}}, "resources.disk_size_gb"),
        ({"resources": {"cpu_count": 2, "disk_size_gb": 2001}}, "resources.disk_size_gb"),
        ({"workers": []}, "workers"),
        ({"workers": [{"command": " \n"}]}, "workers.0.command"),
        ({"workers": [{"command": "a"}] * 2, "type": "inference"}, "workers"),
        ({"workers": [{"command": "a"}] * 2, **SERVICE}, "workers"),
        ({"type": "notebook"}, "port"),
        ({"type": "endpoint"}, "port"),
        ({"port": 80}, "port"),
        ({"port": 70_000}, "port"),
        ({"data": {"output": {"type": "local"}}, **SERVICE}, "data.output"),
        ({"data": {"output": {"type": "ftp"}}}, "data.output.type"),
        ({"data": {"output": {"type": "aws"}}}, "data.output.bucket"),
        ({"data": {"input": {"type": "ftp"}}}, "data.input.type"),
        ({"data": {"input": {"type": "web", "url": "ftp://a.test/a"}}}, "data.input.url"),
        (
            {"data": {"input": {"type": "kaggle", "dataset": "a/b", "version": 0}}},
            "data.input.version",
        ),
        ({"data": {"volumes": [{"id": "vol-1", "access": "read"}]}}, "data.volumes"),
        ({"data": {"volumes": ["vol-1"]}, **SERVICE}, "data.volumes.0"),
        ({"data": {"volumes": [{"id": "vol-1"}]}, **SERVICE}, "data.volumes.0.access"),
        (
            {"data": {"volumes": [{"id": "vol-1", "access": "both"}]}, **SERVICE},
            "data.volumes.0.access",
        ),
        ({"data": {"datasets": ["dat-1"]}, "type": "inference"}, "data.datasets"),
        ({"data": {"input": {"type": "local"}}}, "data.input.upload_id"),
        ({"environment": {"python_packages": ["--index-url=x"]}}, "environment.python_packages.0"),
        ({"environment": {"python_packages": ["x @ file:///"]}}, "environment.python_packages.0"),
        ({"environment": {"apt_packages": ["-y"]}}, "environment.apt_packages.0"),
        ({"environment": {"apt_packages": ["openssh-server-"]}}, "environment.apt_packages.0"),
        ({"environment": {"apt_packages": ["needrestart=3.6-7"]}}, "environment.apt_packages.0"),
        ({"environment": {"apt_packages": ["libc6:i386"]}}, "environment.apt_packages.0"),
        ({"environment": {"requirements": "../requirements.txt"}}, "environment.requirements"),
        ({"environment": {"requirements": "/etc/requirements.txt"}}, "environment.requirements"),
        ({"environment": {"requirements": "./requirements.txt"}}, "environment.requirements"),
        ({"environment": {"requirements": "deps\\\\needs.txt"}}, "environment.requirements"),
        ({"environment": {"requirements": "setup.cfg"}}, "environment.requirements"),
        ({"environment": {"requirements": "a.txt"}}, "environment.requirements"),
        (
            {
                "environment": {"requirements": "a.txt", "image": "a:1"},
                "code": {"upload_id": "upl-1"},
            },
            "environment.requirements",
        ),
        ({"environment": {"setup": ["true", " "]}}, "environment.setup.1"),
        ({"environment": {"setup": "a\0b"}}, "environment.setup.0"),
        ({"environment": {"setup": "x" * 8193}}, "environment.setup"),
        ({"environment": {"setup": ["true"] * 17}}, "environment.setup"),
        ({"environment": {"image": "--privileged"}}, "environment.image"),
        ({"environment": {"variables": {"1A": "x"}}}, "environment.variables"),
        ({"environment": {"variables": {"BASELOAD_JOB_ID": "x"}}}, "environment.variables"),
        ({"environment": {"variables": {"A": "x\0"}}}, "environment.variables.A"),
        (
            {"environment": {"secrets": {"TOKEN": "env://HOME"}}},
            "environment.secrets.TOKEN",
        ),
        (
            {"environment": {"secrets": {"TOKEN": "store://providers/gcp/key"}}},
            "environment.secrets.TOKEN",
        ),
        ({"placement": {"region_id": "home"}}, "placement.region_id"),
        ({"placement": {"providers": ["a" * 101]}}, "placement.providers.0"),
        ({"placement": {"providers": ["gcp", "mine", "gcp"]}}, "placement.providers.2"),
        ({"placement": {"providers": []}}, "placement.providers"),
        ({"safety": {"idle_timeout_s": 1}}, "safety.idle_timeout_s"),
        ({"safety": {"idle_timeout_s": 2592001}}, "safety.idle_timeout_s"),
        ({"safety": {"max_restarts": 101}}, "safety.max_restarts"),
        ({"placement": {"spot": "perhaps"}}, "placement.spot"),
        ({"surprise": 1}, "surprise"),
        ({"resources": {"cpu_count": 2, "gpus_per_node": 1}}, "resources.gpus_per_node"),
        ({"type": "batch"}, "type"),
    ],
)
def test_one_broken_rule_is_one_mistake_at_its_field(changes: dict[str, Any], field: str) -> None:
    assert fields(document(**changes)) == [field]


def test_mistakes_of_shape_and_of_rules_come_together() -> None:
    broken = document(
        priority="soon",
        resources={"gpus": "A1OO:2", "disk_size_gb": 1},
        workers=[{"command": ""}, {"comand": "x"}],
        extra=1,
    )
    assert fields(broken) == [
        "extra",
        "priority",
        "resources.disk_size_gb",
        "resources.gpus",
        "workers.0.command",
        "workers.1.comand",
        "workers.1.command",
    ]


def test_a_mistake_names_the_value_and_near_names() -> None:
    (mistake,) = read_submission(document(resources={"gpus": "RTX4O90:1"})).mistakes
    assert mistake.value == "RTX4O90"
    assert "RTX4090" in mistake.rule


@pytest.mark.parametrize("part", ["variables", "secrets"])
def test_values_of_variables_and_secrets_are_never_sent_back(part: str) -> None:
    hidden = "hunter2-and-more"
    given = document(environment={part: {"TOKEN": [hidden], "OTHER": hidden + "\0"}})
    assert hidden not in read_submission(given).model_dump_json()


def test_a_gpu_name_outside_the_catalogue_passes_when_a_node_has_it() -> None:
    given = document(resources={"gpus": "Imagine 9000:1"})
    assert fields(given) == ["resources.gpus"]
    reading = read_submission(given, ("IMAGINE 9000",))
    assert reading.submission is not None
    assert resources_of(reading.submission, ("IMAGINE 9000",)).gpu_types == ("IMAGINE 9000",)


@pytest.mark.parametrize("kind", [JobType.TRAINING, JobType.INFERENCE])
def test_output_is_kept_unless_it_is_refused(kind: JobType) -> None:
    assert JobSubmission.model_validate(document(type=kind)).keeps_output
    refused = document(type=kind, data={"output": None})
    assert not JobSubmission.model_validate(refused).keeps_output


def test_a_service_keeps_its_output() -> None:
    assert JobSubmission.model_validate(document(**SERVICE)).keeps_output


@pytest.mark.parametrize(
    ("wrong", "field", "rule"),
    [
        ({"enviroment": {}}, "enviroment", "did you mean environment?"),
        ({"resources": {"gpu": "A100"}}, "resources.gpu", "these are gpus, gpu_types,"),
        ({"resources": {"gpu": "A100"}}, "resources.gpu", "did you mean gpus?"),
        ({"workers": [{"comand": "true"}]}, "workers.0.comand", "did you mean command?"),
        ({"workers": [{}]}, "workers.0.command", "is needed"),
        ({"type": "trainin"}, "type", "is one of notebook, training, inference, endpoint; did you"),
        ({"environment": {"python_packages": "a"}}, "environment.python_packages", "is a list"),
        ({"environment": {"variables": ["a"]}}, "environment.variables", "is a map of names"),
        ({"environment": {"image": ["a"]}}, "environment.image", "is a text"),
        ({"resources": {"cpu_count": "two"}}, "resources.cpu_count", "is a whole number"),
        ({"resources": {"memory_gib": "two"}}, "resources.memory_gib", "is a number"),
        ({"safety": {"auto_terminate": "no way"}}, "safety.auto_terminate", "is true or false"),
        ({"placement": 5}, "placement", "is a map with the fields region_id, providers,"),
    ],
)
def test_a_wrong_shape_is_refused_with_what_is_permitted_there(
    wrong: dict[str, Any], field: str, rule: str
) -> None:
    told = [one.rule for one in read_submission(document(**wrong)).mistakes if one.field == field]
    assert any(rule in each for each in told), told
    assert "input" not in "".join(told)


@pytest.mark.parametrize(
    ("written", "full"),
    [
        ("debian:12", "docker.io/library/debian:12"),
        ("pytorch/pytorch:latest", "docker.io/pytorch/pytorch:latest"),
        ("ghcr.io/owner/name:1", "ghcr.io/owner/name:1"),
        ("registry:5000/name", "registry:5000/name"),
        ("localhost/name", "localhost/name"),
    ],
)
def test_an_image_without_a_registry_is_of_docker_io(written: str, full: str) -> None:
    assert is_image(written)
    assert full_image(written) == full


def test_numbers_and_booleans_are_variables_as_they_are_written() -> None:
    given = {"environment": {"variables": {"FLAG": True, "OFF": False, "RATE": 0.1, "N": 3}}}
    found = JobSubmission.model_validate(document(**given)).environment.variables
    assert found == {"FLAG": "true", "OFF": "false", "RATE": "0.1", "N": "3"}


def test_a_stored_submission_reads_back_the_same() -> None:
    submission = JobSubmission.model_validate(document(data={"output": None}))
    assert JobSubmission.model_validate(submission.model_dump(mode="json")) == submission


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@given(field=st.sampled_from([*JobSubmission.model_fields, "other"]), value=JSON)
def test_no_document_breaks_the_reader(field: str, value: Any) -> None:
    reading = read_submission(document() | {field: value})
    assert (reading.submission is None) == bool(reading.mistakes)
    assert all(mistake.field and mistake.rule for mistake in reading.mistakes)


@given(JSON)
def test_anything_that_is_no_job_is_refused_with_a_reason(value: Any) -> None:
    assert read_submission(value).mistakes


@pytest.mark.parametrize(
    ("changes", "policy"),
    [
        ({}, "allowed"),
        ({"type": "notebook", "port": 8888}, "never"),
        ({"type": "notebook", "port": 8888, "placement": {"spot": "required"}}, "required"),
    ],
)
def test_only_what_people_are_at_keeps_its_machine_unless_it_is_said_otherwise(
    changes: dict[str, Any], policy: str
) -> None:
    submission = read_submission(document(**changes)).submission
    assert submission is not None
    assert spot_policy_of(submission) == policy


@pytest.mark.parametrize(
    ("resources", "gib"),
    [
        ({"cpu_count": 2}, 3.0),
        ({"gpus": "A100"}, 6.0),
        ({"gpus": "A100:4", "cpu_count": 4}, 24.0),
        ({"gpu_types": ["A100"], "gpu_count": 1, "cpu_count": 8}, 12.0),
        ({"cpu_count": 2, "memory_gib": 0.5}, 0.5),
    ],
)
def test_memory_is_reserved_by_cpus_and_gpus_unless_it_is_named(
    resources: dict[str, Any], gib: float
) -> None:
    read = read_submission(document(resources=resources)).submission
    assert read is not None
    assert read.resources.memory_gib == gib
    assert resources_of(read).memory_bytes == int(gib * 2**30)


@pytest.mark.parametrize(
    "name",
    [
        "requirements.txt", "deps/dev.in", "pyproject.toml", "sub/uv.lock", "pylock.toml",
        "pylock.gpu.toml", "environment.yml", "conda/env.yaml",
    ],
)  # fmt: skip
def test_packages_are_named_by_every_kind_of_file_that_a_node_reads(name: str) -> None:
    code = {"upload_id": "upl-1"}
    given = document(environment={"requirements": name}, code=code)
    found = read_submission(given).submission
    assert found is not None
    assert found.environment.requirements == name


def test_a_single_set_up_step_may_be_a_text() -> None:
    found = read_submission(document(environment={"setup": "make data"})).submission
    assert found is not None
    assert found.environment.setup == ("make data",)
