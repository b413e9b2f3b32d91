"""What runs get of third-party keys."""

import json

from activities.third_party_keys.of_runs import keys_of_run, registry_login
from activities.third_party_keys.reading import TOKEN_URI, read_key
from tests.activities.third_party_keys.keys import HOST_LINE, SECRET, sound_keys, ssh_key
from workflows.contracts.third_party_keys import KeyType

KEYS = {kind: read_key(kind, text) for kind, text in sound_keys().items()}


def test_a_run_gets_variables_and_files_of_all_its_keys() -> None:
    found = keys_of_run(KEYS)
    assert found.variables == {
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AZURE_STORAGE_ACCOUNT": "picturestore",
        "AZURE_STORAGE_KEY": "QUJD" * 16,
        "GOOGLE_CLOUD_PROJECT": "vision-1",
        "HF_TOKEN": f"hf_{SECRET}",
        "NGC_API_KEY": f"nvapi-{SECRET}",
        "NGC_CLI_API_KEY": f"nvapi-{SECRET}",
        "WASABI_ACCESS_KEY_ID": "WASEXAMPLE",
        "WASABI_SECRET_ACCESS_KEY": SECRET,
    }
    assert set(found.files) == {"config.json", "gcp.json", "git_key", "kaggle.json", "known_hosts"}
    assert found.files["git_key"] == ssh_key()
    assert HOST_LINE in found.files["known_hosts"]
    assert "github.com ssh-ed25519 " in found.files["known_hosts"]
    assert json.loads(found.files["gcp.json"])["token_uri"] == TOKEN_URI
    assert json.loads(found.files["kaggle.json"]) == {"username": "ada", "key": SECRET}
    assert found.paths["GOOGLE_APPLICATION_CREDENTIALS"] == "{keys}/gcp.json"
    assert SECRET not in json.dumps(found.paths)
    assert SECRET not in repr(found)


def test_a_login_is_for_its_own_registry_alone() -> None:
    docker, ngc = KEYS[KeyType.DOCKER], KEYS[KeyType.NGC]
    assert registry_login(KeyType.DOCKER, docker, "ghcr.io") == f"ada:{SECRET}"
    assert registry_login(KeyType.DOCKER, docker, "ghcr.io.evil.example") is None
    assert registry_login(KeyType.NGC, ngc, "nvcr.io") == f"$oauthtoken:nvapi-{SECRET}"
    assert registry_login(KeyType.NGC, ngc, "ghcr.io") is None


def test_a_token_for_git_is_sent_to_its_own_host_alone() -> None:
    given = json.dumps({"host": "github.com", "username": "ada", "token": SECRET})
    found = keys_of_run({KeyType.GIT: read_key(KeyType.GIT, given)})
    assert found.variables["GIT_CONFIG_KEY_0"] == "http.https://github.com/.extraHeader"
    assert found.files == {}
