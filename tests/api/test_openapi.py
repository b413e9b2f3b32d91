"""The OpenAPI document in git is the one that the application has."""

from collections import Counter
from typing import Any

from baseload.calls import Call

from api.event_streams import MEDIA_TYPE
from api.openapi import document
from tests.api.openapi_document import CHECKED_IN, DOCUMENT


def _operations() -> list[tuple[str, dict[str, Any]]]:
    paths = DOCUMENT["paths"]
    return [(path, operation) for path, of_it in paths.items() for operation in of_it.values()]


def test_the_document_in_git_is_the_applications_own() -> None:
    assert CHECKED_IN.read_text() == document(), "python -m api openapi > api/openapi.json"


def test_every_operation_has_a_name_of_its_own_a_tag_and_a_problem() -> None:
    names = Counter(operation["operationId"] for _, operation in _operations())
    assert not [name for name, count in names.items() if count > 1]
    for path, operation in _operations():
        assert operation["tags"], path
        assert "application/problem+json" in operation["responses"]["default"]["content"], path


def test_every_answer_of_json_has_a_shape() -> None:
    for path, operation in _operations():
        for status, answer in operation["responses"].items():
            json_answer = answer.get("content", {}).get("application/json")
            if json_answer is not None:
                assert json_answer["schema"], (path, status)


def test_every_body_refuses_fields_that_it_does_not_know() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    bodies = {
        content["schema"]["$ref"].rpartition("/")[2]
        for _, operation in _operations()
        for content in operation.get("requestBody", {}).get("content", {}).values()
        if "$ref" in content["schema"]
    }
    assert "JobSubmission" in bodies
    assert all(schemas[body]["additionalProperties"] is False for body in bodies)


def test_only_health_and_announcements_need_no_key() -> None:
    free = {path for path, operation in _operations() if "security" not in operation}
    announcements = {"/v1/announcements", "/v1/colab/announcements"}
    assert free == {"/healthz", "/readyz", "/metrics"} | announcements


def test_every_stream_is_described_by_the_model_of_its_messages() -> None:
    models = {}
    for path, operation in _operations():
        follows = any(each["name"] == "follow" for each in operation.get("parameters", ()))
        stream = operation["responses"].get("200", {}).get("content", {}).get(MEDIA_TYPE)
        assert follows is (stream is not None), path
        if stream is not None:
            messages = stream["itemSchema"].get("oneOf", [stream["itemSchema"]])
            content = messages[0]["properties"]["data"]["contentSchema"]["$ref"]
            models[path] = (content.rpartition("/")[2], len(messages))
    assert models.pop("/v1/jobs/{job_id}/logs") == ("LogPiece", 2)
    assert models.pop("/v1/devices/{device_id}/logs") == ("DeviceLogPiece", 3)
    assert set(models.values()) == {("Event", 1)}
    assert {"/v1/events", "/v1/jobs/{resource_id}/events"} <= models.keys()
    schemas = DOCUMENT["components"]["schemas"]
    assert list(schemas["LogPiece"]["properties"]) == ["worker", "offset", "text"]


def test_a_refusal_is_described_as_a_problem_and_as_nothing_else() -> None:
    for path, operation in _operations():
        content = operation["responses"]["default"]["content"]
        assert list(content) == ["application/problem+json"], path


def test_an_upload_is_described_as_the_bytes_that_the_client_sends() -> None:
    (upload,) = (each for _, each in _operations() if each["operationId"] == "create_upload")
    (media_type,) = upload["requestBody"]["content"]
    headers = Call("POST", "/v1/uploads", file=CHECKED_IN).prepared_headers()
    assert media_type == headers["Content-Type"] == "application/gzip"
