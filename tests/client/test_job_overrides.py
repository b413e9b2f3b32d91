"""Options beside a job file: which fields they replace, and what they refuse."""

from pathlib import Path

import pytest
from baseload.job_files import JobFile, read_job_file
from baseload.job_overrides import OverrideError, Overrides, variables_in

JOB = """\
name: digits
type: training
resources: {gpu_types: [A100], gpu_count: 2, cpu_count: 4}
environment: {variables: {EPOCHS: "20", SEED: "1"}}
workers: [{command: one}, {command: two}]
"""


def _job(folder: Path) -> JobFile:
    path = folder / "job.yaml"
    path.write_text(JOB)
    return read_job_file(path)


def test_options_replace_the_fields_that_they_name_and_no_other(tmp_path: Path) -> None:
    file = _job(tmp_path)
    found = Overrides(
        name="second",
        gpus="H100:8",
        variables=["EPOCHS=3", "URL=a=b"],
        fields=["safety.max_restarts=0", "placement.providers=[gcp]", "workers.1.command=three"],
    ).applied(file, {})
    assert found.job == {
        "name": "second",
        "type": "training",
        "resources": {"gpus": "H100:8", "cpu_count": 4},
        "environment": {"variables": {"EPOCHS": "3", "SEED": "1", "URL": "a=b"}},
        "safety": {"max_restarts": 0},
        "placement": {"providers": ["gcp"]},
        "workers": [{"command": "one"}, {"command": "three"}],
    }
    assert file.job["name"] == "digits", "the file's own job stays as it is"


def test_providers_and_the_price_cap_are_fields_of_the_job(tmp_path: Path) -> None:
    found = Overrides(providers=["runpod", "own"], price_cap_microcredits=2_500_000)
    job = found.applied(_job(tmp_path), {}).job
    assert job["placement"] == {"providers": ["runpod", "own"]}
    assert job["safety"] == {"price_cap_microcredits_per_hour": 2_500_000}


def test_labels_come_beside_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "labelled.yaml"
    path.write_text(JOB + "labels: {team: vision, run: 1}\n")
    found = Overrides(labels=["run=2", "example.org/by=a=b"]).applied(read_job_file(path), {})
    assert found.job["labels"] == {"team": "vision", "run": "2", "example.org/by": "a=b"}
    assert found.place_of("labels.run") == "--label run"
    bare = Overrides(labels=["team=vision"]).applied(_job(tmp_path), {})
    assert bare.job["labels"] == {"team": "vision"}


def test_a_command_replaces_that_of_every_worker(tmp_path: Path) -> None:
    file = _job(tmp_path)
    words = Overrides(command=["python", "train.py", "--name", "a b"]).applied(file, {})
    assert words.job["workers"] == [{"command": "python train.py --name 'a b'"}] * 2
    whole = Overrides(command=["python a.py && python b.py"]).applied(file, {})
    assert whole.job["workers"] == [{"command": "python a.py && python b.py"}] * 2


def test_a_variable_comes_from_the_line_the_file_or_this_shell(tmp_path: Path) -> None:
    path = tmp_path / "variables"
    path.write_text("# comment\n\nexport A=1\nB = ' two '\nTOKEN\nC=\"x\"y\nD='#'\n")
    found = variables_in(path, {"TOKEN": "of this shell"})
    assert found == {"A": "1", "B": " ' two '", "TOKEN": "of this shell", "C": '"x"y', "D": "#"}
    both = Overrides(variables=["A=9", "TOKEN"], variable_files=[path])
    variables = both.applied(_job(tmp_path), {"TOKEN": "t"}).job["environment"]["variables"]
    assert variables["A"] == "9"
    assert variables["TOKEN"] == "t"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (Overrides(fields=["name"]), "--set name: asked PATH=VALUE"),
        (Overrides(fields=["a..b=1"]), "--set a..b=1: asked PATH=VALUE"),
        (Overrides(fields=["name=[1"]), "--set name: the value is no YAML"),
        (Overrides(fields=["workers.7.command=x"]), "--set workers.7.command: 7 is none of the 2"),
        (Overrides(variables=["1X=2"]), "asked NAME=VALUE"),
        (Overrides(labels=["team"]), "--label team: asked KEY=VALUE, such as team=vision"),
        (Overrides(variables=["MISSING"]), "--env MISSING: MISSING has no value in this shell"),
        (Overrides(variable_files=[Path("nowhere")]), "--env-file nowhere: No such file"),
    ],
)
def test_an_option_that_cannot_be_read_is_named(
    tmp_path: Path, overrides: Overrides, said: str
) -> None:
    with pytest.raises(OverrideError) as refused:
        overrides.applied(_job(tmp_path), {})
    assert said in str(refused.value)


def test_a_wrong_line_of_a_variable_file_is_named_without_its_value(tmp_path: Path) -> None:
    path = tmp_path / "variables"
    path.write_text("GOOD=1\nBAD NAME=hush-hush\n")
    with pytest.raises(OverrideError) as refused:
        variables_in(path, {})
    assert f"{path}:2" in str(refused.value)
    assert "hush-hush" not in str(refused.value)


def test_a_field_has_its_line_or_the_option_that_gave_it(tmp_path: Path) -> None:
    found = Overrides(gpus="H1000", fields=["safety.idle_timeout_s=1"]).applied(_job(tmp_path), {})
    assert found.place_of("resources.gpus") == "--gpus"
    assert found.place_of("safety.idle_timeout_s") == "--set safety.idle_timeout_s"
    assert found.place_of("resources.cpu_count").endswith("job.yaml:3")
    assert JobFile(None, {}, None, {}).place_of("name") == ""
