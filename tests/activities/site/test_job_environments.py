"""The Python environment and the set-up of a job, from its sealed order to its log."""

from pathlib import Path

from tests.activities.archives import file
from tests.activities.site.test_runs import RUN, collected, exited, order, refusal, started, upload
from tests.activities.sites import Site
from workflows.contracts import errors


async def test_packages_by_a_file_of_the_code_and_a_set_up_reach_the_run(
    site: Site, tmp_path: Path
) -> None:
    code = upload(site, tmp_path, file("needs.txt", b"# nothing yet\n"))
    await started(
        site, "cat made", code_sha256=code, requirements="needs.txt", setup=("echo yes > made",)
    )
    assert (await exited(site)).exit is not None
    assert await collected(site) == b"baseload: set-up begins\nbaseload: set-up ends\nyes\n"


async def test_a_set_up_that_fails_is_the_reason_that_its_job_gets(site: Site) -> None:
    await started(site, "echo never", setup=("exit 3",))
    found = (await exited(site)).exit
    assert found is not None
    assert (found.reason, found.exit_code) == ("setup", 3)
    assert not found.succeeded


async def test_a_file_that_the_code_lacks_is_refused_by_its_name(
    site: Site, tmp_path: Path
) -> None:
    code = upload(site, tmp_path, file("a"))
    found = await refusal(site, order(site, "true", code_sha256=code, requirements="needs.txt"))
    assert (found.type, found.details) == (errors.WORK_REFUSED, ({"code": "requirements"},))
    assert str(found).find("environment.requirements: needs.txt: there is no such file") >= 0


async def test_the_keys_of_a_run_come_with_its_sealed_order_and_go_with_it(site: Site) -> None:
    files = {"gcp.json": '{"private_key": "that-nobody-may-see"}'}
    paths = {"GOOGLE_APPLICATION_CREDENTIALS": "{keys}/gcp.json"}
    asked = 'cat "$GOOGLE_APPLICATION_CREDENTIALS"; echo; stat -c %a "$BASELOAD_KEYS/gcp.json"'
    await started(site, asked, key_files=files, key_paths=paths)
    assert (await exited(site)).exit is not None
    assert await collected(site) == f"{files['gcp.json']}\n600\n".encode()
    folder = site.agent.path(RUN, "")
    left = [path for path in folder.rglob("*") if path.is_file() and path.name != "log"]
    assert left
    assert not [path.name for path in left if b"nobody-may-see" in path.read_bytes()]
