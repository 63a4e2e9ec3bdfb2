"""The pages of the tools: /docs/api lists them, /tools/<building>/<tool> describes one and has a form that calls it."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp

from campus.building import Building
from campus.caller import ABSENT
from campus.catalog.authors import task_path
from campus.catalog.plan import Plan
from campus.catalog.server import OpenBuilding
from campus.context import context_of
from campus.directory import ToolEntry
from campus.features.tool_pages.samples import samples_of
from campus.features.tool_pages.tool_form import (
    Argument,
    arguments_of,
    example_answer,
    example_values,
    missing_in_path,
    places_of,
    read_values,
    result_fields,
    sent_values,
)
from campus.http.service_routes import not_found, own_page
from campus.http_parts import HttpPart
from campus.layout.accept import form_for
from campus.paywall.admission import ALL
from campus.problems import EXPLANATIONS
from campus.visitors import call_of, passed_on
from twins import Answer, Operation, Problem, RouteEntry, is_read_only

API = "/docs/api"
TOOL = "/tools/{building}/{tool}"
START = "/"
LONGEST_SHOWN = 48_000  # Characters of an answer that are shown.
LONGEST_TARGET = 30_000  # Characters of the address of a call: over the network none has more.
LONGEST_SAMPLED = 4_000  # Characters of the values that the samples of a call contain; with more of them they show an example.


@dataclass(frozen=True)
class Answered:
    status: int
    milliseconds: float
    size: int
    text: str
    is_cut: bool
    problem: Mapping[str, Any] | None
    headers: Mapping[str, str]


@dataclass(frozen=True)
class ShownTool:
    building: OpenBuilding
    operation: Operation
    entry: ToolEntry


class ToolPages(HttpPart):
    places: Mapping[str, str] = {"tools": API, "tool": TOOL}
    notices = True

    def routes(self, plan: Plan, servers: Mapping[str, ASGIApp]) -> Collection[RouteEntry]:
        has_start = any(page.path == START for one in plan.opened for page in one.loaded.building.pages)
        return [
            own_page(["GET"], API, self.api),
            own_page(["GET"], TOOL, self.tool),
            own_page(["POST"], TOOL, self.call),
            *(own_page(["GET"], path, self.to_api) for path in ("/tools", "/tools/{building}", *([] if has_start else [START]))),
        ]

    async def to_api(self, request: Request) -> Response:
        """Leads browsers to the list of tools, also those whose address was cut at its end."""
        if form_for(request, ("json", "html")) == "json":
            raise not_found(self.directory)
        return RedirectResponse(API, status_code=303)

    async def api(self, request: Request) -> Response:
        buildings = self.directory.buildings()
        return self.pages.page("docs.html", request, data={"ok": True, "buildings": buildings}, buildings=buildings)

    async def tool(self, request: Request) -> Response:
        shown = self._found(request)
        values = {name: value for name, value in request.query_params.items() if name in shown.operation.by_name}
        await self.visitors.credential(request)
        return self._page(request, shown, values)

    async def call(self, request: Request) -> Response:
        shown = self._found(request)
        values = sent_values(await self.pages.layout.checked_form(request, repeats=not _changes(shown.operation)))
        arguments = read_values(arguments_of(shown.operation, values))
        await self.visitors.credential(request)
        if missing := missing_in_path(shown.operation, arguments):
            problem = Problem(422, "invalid_request", f"fill in {' and '.join(missing)}: the address of the call contains it")
            answered = _refused(problem)
        elif len((call := call_of(shown.operation, arguments)).target) > LONGEST_TARGET:
            answered = _refused(Problem(422, "invalid_request", "these values are too long for the address of a call; shorten them"))
        else:
            started = perf_counter()
            answer = await self.visitors.respond(call, request)
            answered = _answered(answer, (perf_counter() - started) * 1000)
        return self._page(request, shown, values, answered)

    def _found(self, request: Request) -> ShownTool:
        name = request.path_params["building"]
        tool = request.path_params["tool"]
        building = self.visitors.buildings.get(name)
        entry = self.directory.tool(name, tool)
        if building is None or entry is None:
            raise Problem(404, "not_found", f"there is no tool {tool!r} in {name!r}; /docs/api lists all tools")
        return ShownTool(building, building.operations[tool], entry)

    def _page(self, request: Request, shown: ShownTool, values: Mapping[str, str], answered: Answered | None = None) -> Response:
        building = shown.building
        operation = shown.operation
        entry = shown.entry
        arguments = arguments_of(operation, values)
        if sum(map(len, values.values())) <= LONGEST_SAMPLED:
            chosen = read_values(arguments) if answered else example_values(operation, arguments)
        else:  # several samples would repeat it
            chosen = example_values(operation, arguments_of(operation, {}))
        mcp = f"{self.directory.url}{building.mcp_path}"
        with_key = not entry.free and entry.key_scope is not None
        return self.pages.page(
            "tool.html",
            request,
            data={
                "ok": True,
                "building": building.name,
                "mcp": mcp,
                **entry.model_dump(mode="json"),
                "description": operation.tool.description,
                "input_schema": operation.tool.parameters,
                "output_schema": operation.answer_schema,
            },
            status=answered.status if answered and answered.status >= 400 else 200,
            headers=answered.headers if answered else None,
            building=self.directory.building(building.name),
            entry=entry,
            title=operation.tool.title or operation.tool.name,
            paragraphs=_paragraphs(operation),
            arguments=arguments,
            shown=[one for one in arguments if one.required or one.value or one.name in operation.route.any_of],
            example=example_answer(operation),
            is_shape=not (operation.tool.output_schema or {}).get("examples"),
            places=places_of(operation),
            fields=result_fields(operation),
            refusals=_refusals(entry, arguments),
            of_server=building.loaded.building.problems,
            products=[product for product in self.directory.products if entry.key_scope and product.scope in (entry.key_scope, ALL)],
            samples=samples_of(
                call_of(operation, chosen), url=self.directory.url, mcp=mcp, tool=operation.name, arguments=chosen, with_key=with_key
            ),
            changes=_changes(operation),
            destroys=_destroys(operation),
            task=operation.tool.task_config.mode,
            task_path=task_path(building.name),
            answered=answered,
            signed_in=(context_of(request.scope).credential or ABSENT).state == "valid",
        )


def _answered(answer: Answer, milliseconds: float) -> Answered:
    status, body, headers = answer
    try:
        data = json.loads(body)
    except ValueError:
        data = None
    text = body.decode(errors="replace") if data is None else json.dumps(data, indent=2, ensure_ascii=False)
    problem = data if status >= 400 and isinstance(data, dict) else None
    return Answered(status, milliseconds, len(body), text[:LONGEST_SHOWN], len(text) > LONGEST_SHOWN, problem, passed_on(headers))


def _refused(problem: Problem) -> Answered:
    return _answered(Answer(problem.status, json.dumps(problem.body()).encode()), 0.0)


def _changes(operation: Operation) -> bool:
    return not is_read_only(operation.tool)


def _paragraphs(operation: Operation) -> list[str]:
    """What its author says of it; the last paragraph, what a call needs, has a place of its own."""
    return [text.strip() for text in (operation.tool.description or "").split("\n\n")[:-1] if text.strip()]


def _refusals(entry: ToolEntry, arguments: tuple[Argument, ...]) -> dict[str, str]:
    codes = [*([] if entry.free else ["access_required", "insufficient_scope"]), *(["invalid_request"] if arguments else [])]
    return {code: EXPLANATIONS[code] for code in codes}


def _destroys(operation: Operation) -> bool:
    """Whether a tool may undo what was made: in the protocol all may that neither only read nor say otherwise."""
    annotations = operation.tool.annotations
    return _changes(operation) and (annotations is None or annotations.destructive_hint is not False)


building = Building(http=ToolPages)
