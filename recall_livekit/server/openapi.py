"""OpenAPI 3.1, made from the table of routes and the models: there is no second source of truth."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Literal

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema
from starlette.responses import Response

from ..errors import InvalidInput, InvalidRecord, KeyRefused, RecallError, RoleTooLow
from ..problems import MEDIA_TYPE, Problem, problem_type, status_of
from .answers import answer
from .route import EPOCHS, JSON, Asked, Nothing, Route

__all__ = ["described", "openapi"]

Mode = Literal["validation", "serialization"]
Json = dict[str, Any]

_REF = "#/components/schemas/{model}"
_ANY = (RecallError,)
_KEYED = (KeyRefused, RoleTooLow)
_BODY_STATUS = {408: "The body came too slowly.", 413: "Too large.", 415: "Not JSON."}
_PATH: dict[str, Json] = {
    "call_id": {
        "type": "string",
        "pattern": "^(~[A-Za-z0-9_-]+|[A-Za-z0-9_-][A-Za-z0-9._-]{0,127})$",
        "description": "The call id itself, or ~ and its base64url where it has other characters.",
    },
    "epoch": {"type": "integer", "minimum": 0, "maximum": EPOCHS},
    "anchor": {"type": "integer", "minimum": 0, "maximum": EPOCHS},
    "counter": {"type": "integer", "minimum": 0, "maximum": EPOCHS},
}


class _Schemas(GenerateJsonSchema):
    """A record of no known kind is skipped, not refused: kinds do not exclude each other."""

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        """See the class."""
        told = super().tagged_union_schema(schema)
        return {"anyOf": told["oneOf"]} if "oneOf" in told else told


async def openapi(asked: Asked[Nothing, Nothing]) -> Response:
    """GET /openapi.json."""
    return answer(asked.server.openapi, JSON)


def described(routes: Sequence[Route[Any, Any]], version: str) -> bytes:
    """Return the description of these routes."""
    schemas, components = _schemas(routes)
    paths: dict[str, Json] = defaultdict(dict)
    for route in routes:
        paths[route.path][route.method.lower()] = _operation(route, schemas)
    return json.dumps(
        {
            "openapi": "3.1.0",
            "info": {"title": "Recall", "version": version},
            "paths": paths,
            "components": {
                "schemas": components["$defs"],
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            },
        }
    ).encode()


def _schemas(routes: Sequence[Route[Any, Any]]) -> tuple[dict[tuple[Any, Mode], Json], Json]:
    """Return the schema of every body and answer, and what they refer to."""
    asked: dict[tuple[Any, Mode], None] = {(Problem, "serialization"): None}
    for route in routes:
        if route.body is not Nothing:
            asked[(route.body, "validation")] = None
        if route.answer is not None:
            asked[(route.answer, "serialization")] = None
    inputs = [(kind, mode, TypeAdapter(kind)) for kind, mode in asked]
    return TypeAdapter.json_schemas(inputs, ref_template=_REF, schema_generator=_Schemas)


def _operation(route: Route[Any, Any], schemas: dict[tuple[Any, Mode], Json]) -> Json:
    operation: Json = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": _parameters(route),
        "responses": _responses(route, schemas),
    }
    if route.role is not None:
        operation["security"] = [{"key": []}]
        operation["description"] = f"Needs a key of role `{route.role}`."
    if route.body is not Nothing:
        content = {JSON: {"schema": schemas[(route.body, "validation")]}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _parameters(route: Route[Any, Any]) -> list[Json]:
    named = [name for name in _PATH if f"{{{name}}}" in route.path]
    told = [{"name": n, "in": "path", "required": True, "schema": _PATH[n]} for n in named]
    query = route.query.model_json_schema(ref_template=_REF, schema_generator=_Schemas)
    for name, schema in query.get("properties", {}).items():
        told.append({"name": name, "in": "query", "schema": _given(schema)})
    return told


def _given(schema: Json) -> Json:
    """Return the schema of a parameter that is there: None is told by leaving it out."""
    choices = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    rest = {k: v for k, v in schema.items() if k != "anyOf" and (k, v) != ("default", None)}
    return {**rest, **choices[0]} if len(choices) == 1 else schema


def _responses(route: Route[Any, Any], schemas: dict[tuple[Any, Mode], Json]) -> Json:
    success: Json = {"description": HTTPStatus(route.status).phrase}
    if route.answer is not None:
        schema = schemas[(route.answer, "serialization")]
        success["content"] = {route.media: {"schema": schema}}
    if route.headers:
        success["headers"] = {
            name: {"description": text, "schema": {"type": "string"}}
            for name, text in route.headers.items()
        }
    problem = {MEDIA_TYPE: {"schema": schemas[(Problem, "serialization")]}}
    refused = {
        str(status): {"description": text, "content": problem}
        for status, text in sorted(_refusals(route).items())
    }
    return {str(route.status): success, **refused}


def _refusals(route: Route[Any, Any]) -> dict[int, str]:
    """Return by status what a route may refuse with."""
    kinds: list[type[RecallError]] = [*_ANY, *route.raises]
    kinds += _KEYED if route.role is not None else ()
    kinds += (InvalidRecord,) if route.body is not Nothing else ()
    numbered = "{epoch}" in route.path or "{counter}" in route.path
    kinds += (InvalidInput,) if route.query is not Nothing or numbered else ()
    by_status: dict[int, list[str]] = defaultdict(list)
    for kind in dict.fromkeys(kinds):
        by_status[status_of(kind)].append(problem_type(kind))
    told = {status: ", ".join(types) for status, types in by_status.items()}
    return told | (_BODY_STATUS if route.body is not Nothing else {})
