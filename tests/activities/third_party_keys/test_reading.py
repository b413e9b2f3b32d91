"""Third-party keys as people give them: each form read, each mistake named, no value told."""

import base64
import json

import pytest

from activities.third_party_keys.reading import ThirdPartyKeyError, hint_of, read_key
from tests.activities.third_party_keys.keys import (
    HOST_LINE,
    SECRET,
    rsa_pem,
    service_account,
    sound_keys,
    ssh_key,
)
from workflows.contracts.third_party_keys import KeyType


@pytest.mark.parametrize("kind", list(KeyType))
def test_a_sound_key_of_each_type_is_read_and_its_hint_tells_no_secret(kind: KeyType) -> None:
    fields = read_key(kind, sound_keys()[kind])
    secrets = {SECRET, "QUJD" * 16, rsa_pem(), ssh_key()}
    assert any(secret.strip() in value for value in fields.values() for secret in secrets)
    hint = hint_of(kind, fields) or ""
    assert not any(secret in hint for secret in secrets)
    assert read_key(kind, json.dumps(fields)) == fields if kind not in _OWN_FORM else True


_OWN_FORM = (KeyType.DOCKER, KeyType.GCP)


def test_hints_tell_which_key_it_is() -> None:
    hints = {kind: hint_of(kind, read_key(kind, text)) for kind, text in sound_keys().items()}
    assert hints.pop(KeyType.GIT, "").startswith("SHA256:")  # type: ignore[union-attr]
    assert hints == {
        KeyType.AWS: "…MPLE",
        KeyType.WASABI: "…MPLE",
        KeyType.AZURE: "picturestore",
        KeyType.DOCKER: "ghcr.io",
        KeyType.GCP: "reader@vision-1.iam.gserviceaccount.com",
        KeyType.HUGGINGFACE: None,
        KeyType.KAGGLE: "ada",
        KeyType.NGC: None,
    }


def test_a_key_leads_nowhere_but_to_its_service() -> None:
    google = read_key(KeyType.GCP, service_account())
    assert set(google) == {"project_id", "client_email", "private_key_id", "private_key"}
    text = f"DefaultEndpointsProtocol=http;AccountName=pictures;AccountKey={'QUJD' * 16};"
    azure = read_key(KeyType.AZURE, text + "BlobEndpoint=http://169.254.169.254/")
    assert azure == {"account_name": "pictures", "account_key": "QUJD" * 16}


def test_logins_of_several_registries_come_from_dockers_own_file() -> None:
    auth = base64.b64encode(f"ada:{SECRET}".encode()).decode()
    names = ("https://index.docker.io/v1/", "registry.example.org:5000")
    document = {"auths": {name: {"auth": auth} for name in names}, "credsStore": "desktop"}
    found = read_key(KeyType.DOCKER, json.dumps(document))
    login = f"ada:{SECRET}"
    assert found == {"docker.io": login, "registry.example.org:5000": login}
    assert read_key(KeyType.DOCKER, f"{login}\n") == {"docker.io": login}


def test_a_key_for_git_may_be_of_ssh_or_of_https() -> None:
    ssh = read_key(KeyType.GIT, f"{ssh_key()}{HOST_LINE}".replace("\n", "\r\n"))
    assert ssh == {"private_key": ssh_key(), "known_hosts": HOST_LINE}
    assert read_key(KeyType.GIT, rsa_pem())["private_key"] == rsa_pem()
    https = {"host": "github.com", "username": "ada", "token": SECRET}
    assert read_key(KeyType.GIT, json.dumps(https)) == https
    assert hint_of(KeyType.GIT, https) == "github.com"


@pytest.mark.parametrize(
    ("kind", "given", "rule"),
    [
        (KeyType.AWS, SECRET, "is ACCESS_KEY_ID:SECRET_ACCESS_KEY"),
        (KeyType.AWS, f"A B:{SECRET}", "access_key_id: is 3 to 128"),
        (KeyType.AWS, {"access_key_id": "AKIA", "secret": SECRET}, "has no fields but access"),
        (KeyType.AWS, {"access_key_id": "AKIA"}, "secret_access_key: is 8 to 200"),
        (KeyType.AWS, {"access_key_id": 7, "secret_access_key": SECRET}, "access_key_id: is 3"),
        (KeyType.WASABI, f"A:{SECRET}", "access_key_id: is 3 to 128"),
        (KeyType.AZURE, {"account_name": "pictures"}, "account_key or sas_token"),
        (KeyType.AZURE, f"Pictures:{SECRET}", "account_name: is a storage account"),
        (KeyType.DOCKER, {"auths": {}}, "auths: has 1 to 16 registries"),
        (KeyType.DOCKER, {"auths": {"ghcr.io": {}}}, "auths: is USER:PASSWORD"),
        (KeyType.DOCKER, {"auths": {SECRET: {"auth": "YTpi"}}}, "registry: is the host"),
        (KeyType.DOCKER, {"username": "ada", "password": 1}, "password: is needed"),
        (KeyType.DOCKER, {"identitytoken": SECRET}, "has registry, username and password"),
        (KeyType.GCP, {"type": "authorized_user"}, "type: is service_account"),
        (KeyType.GCP, SECRET, "is the JSON file of a service account"),
        (KeyType.GIT, SECRET, "is a private key for SSH"),
        (KeyType.GIT, {"private_key": SECRET}, "private_key: is a private key for SSH"),
        (KeyType.GIT, {"username": "ada"}, "has private_key for SSH, or host and token"),
        (KeyType.GIT, {"host": "github.com"}, "has host and token together"),
        (KeyType.GIT, {"host": "a/b", "token": SECRET}, "host: is the host"),
        (KeyType.HUGGINGFACE, f"hf {SECRET}", "token: is 8 to 200"),
        (KeyType.KAGGLE, "{" + SECRET, "begins with { and is no JSON"),
        (KeyType.NGC, "short", "api_key: is 8 to 500"),
        (KeyType.NGC, "x" * 20_000, "is 1 to 16384 characters"),
    ],
    ids=lambda each: each if isinstance(each, KeyType) else "",
)
def test_a_mistake_names_the_field_and_never_the_value(
    kind: KeyType, given: object, rule: str
) -> None:
    text = given if isinstance(given, str) else json.dumps(given)
    with pytest.raises(ThirdPartyKeyError) as wrong:
        read_key(kind, text)
    assert rule in str(wrong.value)
    assert SECRET not in str(wrong.value)


def test_known_hosts_that_are_none_are_refused() -> None:
    for lines in ("git.example.org", f"{HOST_LINE}\n@cert-authority * ssh-rsa AAAA", "a b c"):
        with pytest.raises(ThirdPartyKeyError, match="known_hosts: has lines"):
            read_key(KeyType.GIT, f"{ssh_key()}{lines}")


def test_a_service_account_with_another_key_is_refused_without_its_key() -> None:
    with pytest.raises(ThirdPartyKeyError, match="private_key: is an RSA private key") as wrong:
        read_key(KeyType.GCP, service_account(private_key=ssh_key()))
    assert "OPENSSH" not in str(wrong.value)
