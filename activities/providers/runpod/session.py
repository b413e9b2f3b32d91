"""RunPod's REST API with the key of one provider."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from activities.providers.base import KeyMistakeError, RequestRefused
from activities.providers.json_api import Answer, JsonApi, json_api
from activities.providers.runpod.errors import MISSING, failure_of, misread
from activities.providers.runpod.key import read_key
from activities.providers.shared_list import KEPT_S, SharedList
from activities.secrets.credentials import CredentialsError, credentials_of
from activities.settings import settings

PODS = "/v2/pods"
KEPT_LISTS = 64

Pods = SharedList[Mapping[str, Any]]


class RunPodSession:
    """The requests that the platform makes. Blocking."""

    def __init__(self, api: JsonApi, listed: Pods | None = None) -> None:
        self._api = api
        self._listed = listed or SharedList()

    def pods(self) -> Sequence[Mapping[str, Any]]:
        """All pods of the account, whoever has made them, read after this was called.

        Raises: Unavailable, RequestRefused.
        """
        return self._listed.fresh(self._read_pods)

    def recent_pods(self) -> Sequence[Mapping[str, Any]]:
        """The pods that a list has shown a few seconds ago; others may be there as well."""
        return self._listed.recent()

    def _read_pods(self) -> list[Mapping[str, Any]]:
        answer = self._succeeded(self._api.ask("GET", PODS))
        pods = answer.fields.get("pods")
        if not isinstance(pods, list):
            raise misread(answer, "a list of pods")
        return [pod for pod in pods if isinstance(pod, dict) and pod.get("id") and "name" in pod]

    def create(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Create a pod. Raises: Unavailable, CapacityExhausted, RequestRefused."""
        answer = self._succeeded(self._api.ask("POST", PODS, body=body))
        if not answer.fields.get("id"):
            raise misread(answer, "the new pod")
        return answer.fields

    def delete(self, pod_id: str) -> bool:
        """Delete a pod. False: it does not exist."""
        answer = self._api.ask("DELETE", f"{PODS}/{quote(pod_id, safe='')}")
        exists = answer.status != MISSING
        if exists:
            self._succeeded(answer)
        self._listed.forget()
        return exists

    def ssh_keys(self) -> None:
        """Read the SSH keys of the account, which costs nothing and proves the key."""
        self._succeeded(self._api.ask("GET", "/v2/account/ssh-keys"))

    def gpus(self, cloud: str, count: int) -> list[Mapping[str, Any]]:
        """The GPU models with their prices, and how many pods of that many GPUs can be had.

        cloud: `SECURE` or `COMMUNITY`.
        Raises: Unavailable, RequestRefused.
        """
        query = {"include": "AVAILABILITY", "product": "POD", "cloud": cloud, "count": str(count)}
        answer = self._succeeded(self._api.ask("GET", "/v2/catalog/gpus", query=query))
        gpus = answer.fields.get("gpus")
        if not isinstance(gpus, list):
            raise misread(answer, "a list of GPU models")
        return [gpu for gpu in gpus if isinstance(gpu, dict)]

    @staticmethod
    def _succeeded(answer: Answer) -> Answer:
        if not answer.is_success:
            raise failure_of(answer)
        return answer


def runpod_session(provider_id: str) -> RunPodSession:
    """The session of a provider, with the key to which its row refers now.

    Raises: RequestRefused, when the provider has no key, or its key is malformed.
    """
    try:
        key = read_key(credentials_of(provider_id))
    except (CredentialsError, KeyMistakeError) as error:
        raise RequestRefused(f"key of {provider_id}: {error}") from error
    of_key = settings().runpod_endpoint, key.api_key
    return RunPodSession(json_api(*of_key), _list_of(*of_key))


@lru_cache(maxsize=KEPT_LISTS)
def _list_of(endpoint: str, key: str) -> Pods:  # noqa: ARG001 - they are what it is kept by
    """The list of the pods of a key, the same for all threads of this process."""
    return SharedList(KEPT_S)
