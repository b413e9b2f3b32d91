"""What a run gets of a third-party key: variables, and files that variables name."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from activities.third_party_keys.reading import TOKEN_URI
from workflows.contracts.third_party_keys import KeyType
from workflows.rules.jobs.registries import NGC_REGISTRY, NGC_USER

FOLDER = "{keys}"
"""What stands in a value for the folder of the files, which only the node knows."""
Fields = Mapping[str, str]
_ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI"
PUBLIC_HOSTS = (
    f"github.com {_ED25519}OMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl",
    f"gitlab.com {_ED25519}AfuCHKVTjquxvt6CM6tdG4SLp1Btn/nOeHHE5UOzRdf",
    f"bitbucket.org {_ED25519}IazEu89wgQZ4bqs3d63QSMzYVa0MuJ2e2gKTKqu+UUO",
)
"""Lines of a known_hosts file for public git servers, as these publish their keys. A key of a
project brings those of any other host with it, because an unknown host is never trusted.
Fingerprints:
SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU of GitHub,
SHA256:eUXGGm1YGsMAS7vkcx6JOJdOGHPem5gQp4taiCfCLB8 of GitLab,
SHA256:ybgmFkzwOSotHTHLJgHO0QN8L0xErw6vd0VhFA9m3SM of Bitbucket."""


@dataclass(frozen=True)
class RunKeys:
    """What a run gets of its keys."""

    variables: dict[str, str] = field(default_factory=dict, repr=False)
    files: dict[str, str] = field(default_factory=dict, repr=False)
    """By name, each file in the folder of the run's keys."""
    paths: dict[str, str] = field(default_factory=dict)
    """Variables that name files, with `{keys}` for the folder."""


def keys_of_run(keys: Mapping[KeyType, Fields]) -> RunKeys:
    """What a run gets of all keys that it attaches, by their types."""
    found = RunKeys()
    for kind, fields in keys.items():
        one = _OF_TYPE[kind](fields)
        found.variables.update(one.variables)
        found.files.update(one.files)
        found.paths.update(one.paths)
    return found


def service_account(fields: Fields) -> dict[str, str]:
    """A key for Google as its libraries take it; it gets its tokens from Google alone."""
    return {"type": "service_account", "token_uri": TOKEN_URI, **fields}


def registry_login(kind: KeyType, fields: Fields, registry: str) -> str | None:
    """The USER:PASSWORD for a registry; None: the key has none for it."""
    if kind is KeyType.NGC:
        return f"{NGC_USER}:{fields['api_key']}" if registry == NGC_REGISTRY else None
    return fields.get(registry)


def _aws(fields: Fields) -> RunKeys:
    names = {
        "AWS_ACCESS_KEY_ID": "access_key_id",
        "AWS_SECRET_ACCESS_KEY": "secret_access_key",
        "AWS_SESSION_TOKEN": "session_token",
    }
    return RunKeys({name: fields[each] for name, each in names.items() if each in fields})


def _wasabi(fields: Fields) -> RunKeys:
    return RunKeys(
        {
            "WASABI_ACCESS_KEY_ID": fields["access_key_id"],
            "WASABI_SECRET_ACCESS_KEY": fields["secret_access_key"],
        }
    )


def _azure(fields: Fields) -> RunKeys:
    names = {
        "AZURE_STORAGE_ACCOUNT": "account_name",
        "AZURE_STORAGE_KEY": "account_key",
        "AZURE_STORAGE_SAS_TOKEN": "sas_token",
    }
    return RunKeys({name: fields[each] for name, each in names.items() if each in fields})


def _gcp(fields: Fields) -> RunKeys:
    return RunKeys(
        {"GOOGLE_CLOUD_PROJECT": fields["project_id"]},
        {"gcp.json": json.dumps(service_account(fields))},
        {"GOOGLE_APPLICATION_CREDENTIALS": f"{FOLDER}/gcp.json"},
    )


def _kaggle(fields: Fields) -> RunKeys:
    return RunKeys({}, {"kaggle.json": json.dumps(dict(fields))}, {"KAGGLE_CONFIG_DIR": FOLDER})


def _ngc(fields: Fields) -> RunKeys:
    return RunKeys({"NGC_API_KEY": fields["api_key"], "NGC_CLI_API_KEY": fields["api_key"]})


def _docker(fields: Fields) -> RunKeys:
    logins = {name: base64.b64encode(login.encode()).decode() for name, login in fields.items()}
    # The name by which Docker itself knows its own registry.
    named = {
        "https://index.docker.io/v1/" if name == "docker.io" else name: {"auth": login}
        for name, login in logins.items()
    }
    return RunKeys({}, {"config.json": json.dumps({"auths": named})}, {"DOCKER_CONFIG": FOLDER})


def _git(fields: Fields) -> RunKeys:
    found = RunKeys()
    if "private_key" in fields:
        found.files["git_key"] = fields["private_key"].strip() + "\n"
        found.files["known_hosts"] = known_hosts_of(fields)
        found.paths["GIT_SSH_COMMAND"] = (
            f"ssh -F none -i {FOLDER}/git_key -o IdentitiesOnly=yes "
            f"-o UserKnownHostsFile={FOLDER}/known_hosts -o StrictHostKeyChecking=yes"
        )
    if "token" in fields:
        found.variables.update(git_header(fields))
    return found


def known_hosts_of(fields: Fields) -> str:
    """The known_hosts file of a key for git: the public servers, and the hosts of the key."""
    lines = [line.strip() for line in fields.get("known_hosts", "").split("\n")]
    return "".join(f"{line}\n" for line in (*PUBLIC_HOSTS, *filter(None, lines)))


def git_header(fields: Fields) -> dict[str, str]:
    """The variables by which git sends the token of a key to its host, and to no other one."""
    login = f"{fields.get('username', 'git')}:{fields['token']}".encode()
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"http.https://{fields['host']}/.extraHeader",
        "GIT_CONFIG_VALUE_0": f"Authorization: Basic {base64.b64encode(login).decode()}",
    }


_OF_TYPE: dict[KeyType, Callable[[Fields], RunKeys]] = {
    KeyType.AWS: _aws,
    KeyType.AZURE: _azure,
    KeyType.DOCKER: _docker,
    KeyType.GCP: _gcp,
    KeyType.GIT: _git,
    KeyType.HUGGINGFACE: lambda fields: RunKeys({"HF_TOKEN": fields["token"]}),
    KeyType.KAGGLE: _kaggle,
    KeyType.NGC: _ngc,
    KeyType.WASABI: _wasabi,
}
