"""Checks the arguments of one tool before it is called, and names everything that is wrong with them in one problem."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from fastmcp import FastMCP
from fastmcp.tools import FunctionTool
from pydantic import ValidationError

from twins.canonical import without_nulls
from twins.direct_call import DirectTool
from twins.fastmcp_internals import allows_direct_calls, is_proxied
from twins.field_errors import FieldError, pointer_to, unknown_field
from twins.json_reader import require_storable, storable
from twins.misplaced_booleans import SUSPECTS, MisplacedBooleans
from twins.operation import Operation
from twins.problems import Problem, invalid_request
from twins.tool_errors import field_errors, invalid_arguments

NOT_A_NUMBER = "should be a number, not true or false"


class ArgumentChecker:
    """Checks the arguments of one operation, for both frames. A `method` of None means that they came over MCP."""

    def __init__(self, server: FastMCP[Any], operation: Operation) -> None:
        self.operation = operation
        self._server = server
        self._booleans = MisplacedBooleans(operation)
        self._is_proxied = is_proxied(operation.tool)
        self._has_own_rules = bool(self._booleans) or self._is_proxied

    @cached_property
    def direct(self) -> DirectTool | None:
        """The tool's function with its validator; None when only its server may validate the arguments and call it."""
        tool = self.operation.tool
        return DirectTool(self._server, tool) if type(tool) is FunctionTool and allows_direct_calls(self._server) else None

    def precheck(self, arguments: Mapping[str, Any], method: str | None = None) -> None:
        """Raises Problem 422 for what a validator would accept, and for what another server would reject in its own words."""
        if self._booleans.find(arguments) or (self._is_proxied and self._wrong_names(arguments, method)):
            raise self.invalid(arguments, method)

    def check(self, arguments: dict[str, Any], method: str | None = None) -> dict[str, Any]:
        """The arguments, validated; unchanged when only the tool's server may validate them. Raises Problem 422."""
        direct = self.direct
        if self._has_own_rules and (direct is None or not SUSPECTS.isdisjoint(map(type, arguments.values()))):
            self.precheck(arguments, method)  # the condition is repeated here, since most calls have no such value
        if direct is None:
            return arguments
        try:
            return direct.validate(arguments)
        except ValidationError:
            raise self.invalid(arguments, method) from None
        except Problem as problem:
            raise self.with_wrong_names(problem, arguments, method) from None

    def canonical(self, arguments: dict[str, Any], method: str | None = None) -> dict[str, Any]:
        """The arguments in canonical form; only without nulls when the tool's server validates them. Raises as `check`."""
        self.precheck(arguments, method)
        if self.direct is None:
            return without_nulls(arguments)
        try:
            return self.direct.canonical(arguments)
        except ValidationError:
            raise self.invalid(arguments, method) from None
        except Problem as problem:
            raise self.with_wrong_names(problem, arguments, method) from None

    def storable(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments; Unstorable replaces a value that cannot be stored where the tool's route is lenient.

        Raises Problem 400 `invalid_json`, which names each of the other arguments that cannot be stored.
        """
        lenient = self.operation.route.lenient
        require_storable({name: value for name, value in arguments.items() if name not in lenient})
        return dict(storable(arguments, lenient))

    def rejected(self, cause: BaseException | None, arguments: Mapping[str, Any], method: str | None = None) -> Problem:
        """Problem 422 for a validation error of the tool's server, raised for this `cause`. No value is repeated."""
        if isinstance(cause, ValidationError):
            return invalid_arguments(cause, self.operation, method, arguments)
        return Problem(422, "invalid_request", "the arguments do not match the tool's input schema")

    def with_wrong_names(self, problem: Problem, arguments: Mapping[str, Any], method: str | None = None) -> Problem:
        """The problem that a validator raised for one argument; when names are wrong as well, a problem that lists everything."""
        if self.direct is None or not self._wrong_names(arguments, method):
            return problem
        return self.invalid(arguments, method)

    def invalid(self, arguments: Mapping[str, Any], method: str | None = None, *, found: Iterable[FieldError] = ()) -> Problem:
        """Problem 422 with everything that is wrong: what was `found` before, and what these arguments show."""
        errors = list(found)
        paths = self._booleans.find(arguments)
        errors += (FieldError(self._pointer(path, method), "number_type", NOT_A_NUMBER) for path in paths)
        named = {error.pointer for error in errors}
        errors += (error for error in self._validation_errors(dict(arguments), method) if error.pointer not in named)
        return invalid_request(errors, known=self.operation.accepted_names(method))

    def _validation_errors(self, arguments: dict[str, Any], method: str | None) -> list[FieldError]:
        if self.direct is None:
            return self._wrong_names(arguments, method)
        try:
            self.direct.validate(arguments)
        except ValidationError as error:
            return field_errors(error, self.operation, method, arguments)
        except Problem as problem:
            return [*self._wrong_names(arguments, method), FieldError("", problem.code, problem.detail)]
        return []

    def _wrong_names(self, arguments: Mapping[str, Any], method: str | None) -> list[FieldError]:
        """Required arguments that are missing and names that the tool does not accept, by its input schema."""
        operation = self.operation
        missing = [each.name for each in operation.parameters if each.required and each.name not in arguments]
        errors = [FieldError(self._pointer((name,), method), "missing", "is required") for name in missing]
        if not operation.accepts_unknown:
            known = operation.accepted_names(method)
            places = [operation.place_of(name, method) for name in arguments if name not in operation.by_name]
            errors += (unknown_field(place, wire, known[place]) for place, wire in places)
        return errors

    def _pointer(self, path: tuple[str | int, ...], method: str | None) -> str:
        name, *steps = path
        return pointer_to(*self.operation.place_of(str(name), method), *steps)
