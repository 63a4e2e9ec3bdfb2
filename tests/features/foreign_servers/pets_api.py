"""An API of pets, as somebody else made it: a Starlette app with its OpenAPI document; it counts what it is asked."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

TOKEN = "Bearer hunter2-is-secret"
HEADERS = {"Authorization": TOKEN}
REX = {"id": 1, "name": "Rex"}
PET = {"$ref": "#/components/schemas/Pet"}
JSON = "application/json"


def answers(status: int, schema: Any = None) -> dict[str, Any]:
    return {str(status): {"description": "Done"} | ({"content": {JSON: {"schema": schema}}} if schema else {})}


DOCUMENT: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Pets", "version": "2.7", "description": "Pets and who keeps them."},
    "paths": {
        "/pets": {
            "get": {
                "operationId": "list_pets",
                "summary": "List pets",
                "parameters": [
                    {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1}, "example": 5},
                    {"name": "Authorization", "in": "header", "required": True, "schema": {"type": "string"}},
                ],
                "responses": answers(200, {"type": "array", "items": PET}),
            },
            "post": {
                "operationId": "add_pet",
                "summary": "Add a pet",
                "requestBody": {"required": True, "content": {JSON: {"schema": PET}}},
                "responses": answers(201, PET),
            },
        },
        "/pets/{petId}": {
            "parameters": [{"name": "petId", "in": "path", "required": True, "schema": {"type": "integer"}}],
            "get": {
                "operationId": "get_pet",
                "summary": "Get a pet",
                "description": "One pet, by its number.",
                "responses": answers(200, PET),
            },
            "delete": {"operationId": "remove_pet", "summary": "Remove a pet", "responses": answers(204)},
            "put": {
                "operationId": "change_pet",
                "summary": "Change a pet",
                "requestBody": {"required": True, "content": {JSON: {"schema": PET}}},
                "responses": answers(200, PET),
            },
        },
        "/odd/{kind}": {
            "parameters": [{"name": "kind", "in": "path", "required": True, "schema": {"type": "string"}}],
            "get": {"operationId": "odd", "summary": "Behave oddly", "responses": answers(200, {"type": "object"})},
            "head": {"operationId": "head_of_odd", "responses": answers(200)},
        },
    },
    "components": {
        "schemas": {
            "Pet": {
                "type": "object",
                "required": ["name"],
                "properties": {"id": {"type": "integer"}, "name": {"type": "string", "example": "Rex"}},
            }
        }
    },
}


class PetsApi:
    """The API. `asked` counts its requests by method and path, `heads` are the headers of the last one."""

    def __init__(self, document: dict[str, Any] | None = None) -> None:
        self.document = document or DOCUMENT
        self.asked: Counter[str] = Counter()
        self.heads: dict[str, str] = {}
        self.app = Starlette(
            routes=[
                Route("/openapi.json", self._document),
                Route("/pets", self._counted(self._pets), methods=["GET", "POST"]),
                Route("/pets/{id:int}", self._counted(self._pet), methods=["GET", "PUT", "DELETE"]),
                Route("/odd/{kind}", self._counted(self._odd)),
            ]
        )

    async def _document(self, _: Request) -> Response:
        return JSONResponse(self.document)

    def _counted(self, answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def counted(request: Request) -> Response:
            self.asked[f"{request.method} {request.url.path}"] += 1
            self.heads = dict(request.headers)
            return await answer(request)

        return counted

    async def _pets(self, request: Request) -> Response:
        if request.method == "GET":
            response = JSONResponse([REX])
            response.set_cookie("session", "of-one-caller")
            return response
        body = await request.json()
        return JSONResponse({"id": 2, **body}, status_code=201)

    async def _pet(self, request: Request) -> Response:
        if request.path_params["id"] != 1:
            return JSONResponse({"detail": f"no pet has the number {request.path_params['id']}"}, status_code=404)
        match request.method:
            case "DELETE":
                return Response(status_code=204)
            case "PUT":
                return JSONResponse({"message": "somebody else changed it"}, status_code=409)
        return JSONResponse(REX)

    async def _odd(self, request: Request) -> Response:
        match request.path_params["kind"]:
            case "invalid":
                return JSONResponse({"detail": [{"loc": ["kind"], "msg": "is odd"}]}, status_code=422)
            case "too_many":
                return JSONResponse({"message": "slower"}, status_code=429, headers={"Retry-After": "7"})
            case "secret":
                return PlainTextResponse(f"not with {request.headers['authorization']}", status_code=403)
            case "unwelcome":
                return JSONResponse({"message": "who are you?"}, status_code=401)
            case "paid":
                return JSONResponse({"accepts": []}, status_code=402)
            case "crash":
                return PlainTextResponse("Traceback: hunter2", status_code=500)
            case "hang":
                await anyio.sleep(60)
            case "broken":
                return Response("{", media_type=JSON)
            case "moved":
                return RedirectResponse("/pets/1")
            case "away":
                return RedirectResponse("http://elsewhere.example/pets/1?token=hunter2")
            case "huge":
                return JSONResponse({"fill": "x" * 100_000})
        return JSONResponse({"even": True})
