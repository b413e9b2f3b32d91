"""Third-party keys that look real, one or more of each type, and what of them is secret."""

import json
from functools import cache

from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from workflows.contracts.third_party_keys import KeyType

SECRET = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"
HOST_LINE = (
    "git.example.org ssh-ed25519 "
    "AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
)


@cache
def ssh_key() -> str:
    key = ed25519.Ed25519PrivateKey.generate()
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()


@cache
def rsa_pem() -> str:
    key = rsa.generate_private_key(65537, 2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def service_account(**changes: object) -> str:
    """A file as Google hands it out."""
    document: dict[str, object] = {
        "type": "service_account",
        "project_id": "vision-1",
        "private_key_id": "ab12",
        "private_key": rsa_pem(),
        "client_email": "reader@vision-1.iam.gserviceaccount.com",
        "token_uri": "http://169.254.169.254/token",
        "universe_domain": "evil.example",
        **changes,
    }
    return json.dumps(document)


def sound_keys() -> dict[KeyType, str]:
    """A sound key of each type, as a person gives it."""
    return {
        KeyType.AWS: f"AKIAEXAMPLE:{SECRET}",
        KeyType.WASABI: json.dumps({"access_key_id": "WASEXAMPLE", "secret_access_key": SECRET}),
        KeyType.AZURE: f"picturestore:{'QUJD' * 16}",
        KeyType.DOCKER: json.dumps({"registry": "ghcr.io", "username": "ada", "password": SECRET}),
        KeyType.GCP: service_account(),
        KeyType.GIT: f"{ssh_key()}\n{HOST_LINE}\n",
        KeyType.HUGGINGFACE: f"hf_{SECRET}\n",
        KeyType.KAGGLE: json.dumps({"username": "ada", "key": SECRET}),
        KeyType.NGC: f"nvapi-{SECRET}",
    }
