"""The Cloud Quotas API as a discovery document: google-api-python-client ships none of it.

Source: the public `google/api/cloudquotas/v1` protos; the part that reads.
"""

from __future__ import annotations

from typing import Any

_PARENT = r"^projects/[^/]+/locations/global/services/[^/]+$"
_NAME = r"^projects/[^/]+/locations/global/services/[^/]+/quotaInfos/[^/]+$"


def _path(pattern: str) -> dict[str, Any]:
    return {"type": "string", "location": "path", "required": True, "pattern": pattern}


def _text(*names: str) -> dict[str, Any]:
    return {name: {"type": "string"} for name in names}


_QUERY = {
    "pageSize": {"type": "integer", "format": "int32", "location": "query"},
    "pageToken": {"type": "string", "location": "query"},
}

DOCUMENT: dict[str, Any] = {
    "rootUrl": "https://cloudquotas.googleapis.com/",
    "servicePath": "",
    "parameters": {"alt": {}, "fields": {}, "key": {}, "prettyPrint": {}, "quotaUser": {}},
    "resources": {
        "quotaInfos": {
            "methods": {
                "get": {
                    "id": "cloudquotas.quotaInfos.get",
                    "httpMethod": "GET",
                    "path": "v1/{+name}",
                    "parameters": {"name": _path(_NAME)},
                    "response": {"$ref": "QuotaInfo"},
                },
                "list": {
                    "id": "cloudquotas.quotaInfos.list",
                    "httpMethod": "GET",
                    "path": "v1/{+parent}/quotaInfos",
                    "parameters": {"parent": _path(_PARENT), **_QUERY},
                    "response": {"$ref": "ListQuotaInfosResponse"},
                },
            }
        }
    },
    "schemas": {
        "ListQuotaInfosResponse": {
            "type": "object",
            "properties": {
                "quotaInfos": {"type": "array", "items": {"$ref": "QuotaInfo"}},
                **_text("nextPageToken"),
            },
        },
        "QuotaInfo": {
            "type": "object",
            "properties": {
                **_text("name", "quotaId", "metric", "service", "refreshInterval"),
                **_text("metricDisplayName", "quotaDisplayName", "metricUnit"),
                **_text("serviceRequestQuotaUri"),
                "isPrecise": {"type": "boolean"},
                "isFixed": {"type": "boolean"},
                "isConcurrent": {"type": "boolean"},
                "containerType": {
                    "type": "string",
                    "enum": ["CONTAINER_TYPE_UNSPECIFIED", "PROJECT", "FOLDER", "ORGANIZATION"],
                },
                "dimensions": {"type": "array", "items": {"type": "string"}},
                "dimensionsInfos": {"type": "array", "items": {"$ref": "DimensionsInfo"}},
                "quotaIncreaseEligibility": {"$ref": "QuotaIncreaseEligibility"},
            },
        },
        "DimensionsInfo": {
            "type": "object",
            "properties": {
                "dimensions": {"type": "object", "additionalProperties": {"type": "string"}},
                "details": {"$ref": "QuotaDetails"},
                "applicableLocations": {"type": "array", "items": {"type": "string"}},
            },
        },
        "QuotaDetails": {
            "type": "object",
            "properties": {"value": {"type": "string", "format": "int64"}},
        },
        "QuotaIncreaseEligibility": {
            "type": "object",
            "properties": {"isEligible": {"type": "boolean"}, **_text("ineligibilityReason")},
        },
    },
}
