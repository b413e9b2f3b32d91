"""Vast.ai's REST API with the key of one provider."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from activities.providers.base import KeyMistakeError, RequestRefused
from activities.providers.json_api import Answer, JsonApi, json_api
from activities.providers.shared_list import KEPT_S, SharedList
from activities.providers.vastai.errors import (
    NO_MORE_SEARCHES,
    TOO_MANY,
    failure_of,
    is_missing,
    misread,
)
from activities.providers.vastai.key import read_key
from activities.providers.vastai.limits import Limiter, limiter_of
from activities.secrets.credentials import CredentialsError, credentials_of
from activities.settings import settings

PAGE = 25
"""The most instances of one page."""
MOST_PAGES = 400
SEARCH_KEPT_S = 60.0
"""For how long the answer to a search is used again; an offer that is gone by then refuses."""
KEPT_KEYS = 64
"""Of how many keys the searches and lists are kept."""

Instances = SharedList[Mapping[str, Any]]


class Searches:
    """The latest answer to each search with one key, because the searches of a day are counted.

    Thread-safe; searches at once ask twice.
    """

    def __init__(self) -> None:
        self._found: dict[str, tuple[float, list[Mapping[str, Any]]]] = {}

    def latest(self, filters: str, at: float) -> list[Mapping[str, Any]] | None:
        """The answer, unless it is too old; at: now, by any clock that `keep` has too."""
        known = self._found.get(filters)
        return known[1] if known is not None and at - known[0] < SEARCH_KEPT_S else None

    def keep(self, filters: str, at: float, offers: list[Mapping[str, Any]]) -> None:
        self._found[filters] = (at, offers)


class VastSession:
    """The requests that the platform makes. Blocking, with the pauses that Vast.ai wants."""

    def __init__(
        self,
        api: JsonApi,
        limiter: Limiter,
        searches: Searches | None = None,
        listed: Instances | None = None,
    ) -> None:
        self._api = api
        self._limiter = limiter
        self._searches = searches or Searches()
        self._listed = listed or SharedList()

    def instances(self) -> Sequence[Mapping[str, Any]]:
        """All instances of the account, whoever has made them, read after this was called.

        Vast.ai wants seconds between two lists, so all who ask at once share one.

        Raises: Unavailable, RequestRefused.
        """
        return self._listed.fresh(self._read_instances)

    def recent_instances(self) -> Sequence[Mapping[str, Any]]:
        """The instances that a list has shown a few seconds ago; others may be there as well."""
        return self._listed.recent()

    def _read_instances(self) -> list[Mapping[str, Any]]:
        return [each for page in self._pages() for each in page if each.get("id")]

    def instance(self, number: int) -> Mapping[str, Any] | None:
        """One instance; None: it does not exist. Raises: Unavailable, RequestRefused."""
        query = {"owner": "me"}
        answer = self._ask("show", "GET", f"/api/v0/instances/{number}/", query=query)
        if is_missing(answer):
            return None
        found = self._succeeded(answer).fields.get("instances")
        return found if isinstance(found, dict) else None

    def accept(self, ask: int, body: Mapping[str, Any]) -> Answer:
        """The answer to an acceptance. One that is no success may have made an instance too.

        It is asked once, and never repeated here. Raises: Unavailable.
        """
        return self._ask("create", "PUT", f"/api/v0/asks/{ask}/", body=body)

    def destroy(self, number: int) -> bool:
        """Destroy an instance. False: it does not exist.

        Raises: Unavailable, RequestRefused.
        """
        answer = self._ask("destroy", "DELETE", f"/api/v0/instances/{number}/")
        exists = not is_missing(answer)
        if exists:
            self._succeeded(answer)
        self._listed.forget()
        return exists

    def user(self) -> Mapping[str, Any]:
        """The account, which costs nothing and proves the key.

        Raises: Unavailable, RequestRefused.
        """
        return self._succeeded(self._ask("user", "GET", "/api/v0/users/current/")).fields

    def search(self, filters: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The offers that pass the filters, read within the last minute.

        Raises: Unavailable, RequestRefused.
        """
        asked, now = json.dumps(filters, sort_keys=True), self._limiter.now()
        if (known := self._searches.latest(asked, now)) is not None:
            return known
        answer = self._succeeded(self._ask("search", "POST", "/api/v0/bundles/", body=filters))
        offers = answer.fields.get("offers")
        if not isinstance(offers, list):
            raise misread(answer, "a list of offers")
        found: list[Mapping[str, Any]] = [each for each in offers if isinstance(each, dict)]
        self._searches.keep(asked, now, found)
        return found

    def _pages(self) -> Iterator[list[Mapping[str, Any]]]:
        query = {"limit": str(PAGE), "order_by": '[{"col":"id","dir":"asc"}]'}
        for _ in range(MOST_PAGES):
            answer = self._succeeded(self._ask("list", "GET", "/api/v1/instances/", query=query))
            page, token = answer.fields.get("instances"), answer.fields.get("next_token")
            if not isinstance(page, list):
                raise misread(answer, "a list of instances")
            yield [each for each in page if isinstance(each, dict)]
            if not token:
                return
            query["after_token"] = str(token)
        raise misread(answer, f"at most {MOST_PAGES} pages of instances")

    def _ask(
        self,
        call: str,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Answer:
        """Raises: Unavailable, without an answer, or with one that says that it is too early."""
        self._limiter.wait(call)
        answer = self._api.ask(method, path, query=query, body=body)
        if answer.fields.get("error") == NO_MORE_SEARCHES:
            raise failure_of(answer, self._limiter.used_up(call))
        if answer.status == TOO_MANY:
            raise failure_of(answer, self._limiter.too_early(call))
        return answer

    @staticmethod
    def _succeeded(answer: Answer) -> Answer:
        if not answer.is_success or answer.fields.get("success") is False:
            raise failure_of(answer)
        return answer


def vastai_session(provider_id: str) -> VastSession:
    """The session of a provider, with the key to which its row refers now.

    Raises: RequestRefused, when the provider has no key, or its key is malformed.
    """
    try:
        key = read_key(credentials_of(provider_id))
    except (CredentialsError, KeyMistakeError) as error:
        raise RequestRefused(f"key of {provider_id}: {error}") from error
    endpoint = settings().vastai_endpoint
    of_key = endpoint, key.api_key
    return VastSession(
        json_api(*of_key), limiter_of(*of_key), searches_of(*of_key), _list_of(*of_key)
    )


@lru_cache(maxsize=KEPT_KEYS)
def searches_of(endpoint: str, key: str) -> Searches:  # noqa: ARG001 - they are what it is kept by
    """The searches of a key, the same for all threads of this process."""
    return Searches()


@lru_cache(maxsize=KEPT_KEYS)
def _list_of(endpoint: str, key: str) -> Instances:  # noqa: ARG001 - they are what it is kept by
    """The list of the instances of a key, the same for all threads of this process."""
    return SharedList(KEPT_S)
