"""What one tool takes: arguments screened before it is called, and everything that is wrong with them told at once."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from fastmcp import FastMCP
from fastmcp.tools import FunctionTool
from pydantic import ValidationError

from twins.canonical import without_nulls
from twins.direct_call import Direct
from twins.fastmcp_internals import allows_direct_calls, is_proxied
from twins.field_errors import FieldError, pointer_to, unknown_field
from twins.misplaced_booleans import SUSPECTS, MisplacedBooleans
from twins.operation import Operation
from twins.problems import Problem, invalid_request
from twins.validation_errors import field_errors

NOT_A_NUMBER = "should be a number, not true or false"


class ArgumentChecker:
    """The arguments of one operation. A `method` of None means that they came over MCP."""

    def __init__(self, server: FastMCP[Any], operation: Operation) -> None:
        self._server = server
        self._operation = operation
        self._numbers = MisplacedBooleans(operation)
        self._elsewhere = is_proxied(operation.tool)
        self._screens = bool(self._numbers) or self._elsewhere

    @cached_property
    def direct(self) -> Direct | None:
        """The tool's function with its validator; None where only its server may validate and call it."""
        tool = self._operation.tool
        return Direct(self._server, tool) if type(tool) is FunctionTool and allows_direct_calls(self._server) else None

    def screen(self, arguments: Mapping[str, Any], method: str | None = None) -> None:
        """Refuse what a validator would let through, or another server would refuse in words of its own: Problem 422."""
        if self._numbers.booleans(arguments) or (self._elsewhere and self._names(arguments, method)):
            raise self.refusal(arguments, method)

    def check(self, arguments: dict[str, Any], method: str | None = None) -> dict[str, Any]:
        """The arguments as the tool takes them; as they were sent where only its server may validate them. Raises Problem."""
        direct = self.direct
        if self._screens and (direct is None or not SUSPECTS.isdisjoint(map(type, arguments.values()))):
            self.screen(arguments, method)  # looked for here already, since most calls have nothing of the kind
        if direct is None:
            return arguments
        try:
            return direct.validate(arguments)
        except (ValidationError, Problem) as error:
            raise self._told(error, arguments, method) from None

    def canonical(self, arguments: dict[str, Any], method: str | None = None) -> dict[str, Any]:
        """The call in one form; where only its server may validate it, as it was sent without nulls. Raises Problem as `check`."""
        self.screen(arguments, method)
        if self.direct is None:
            return without_nulls(arguments)
        try:
            return self.direct.canonical(arguments)
        except (ValidationError, Problem) as error:
            raise self._told(error, arguments, method) from None

    def completed(self, problem: Problem, arguments: Mapping[str, Any], method: str | None = None) -> Problem:
        """A validator's own refusal of one argument; all findings where names are wrong as well."""
        if self.direct is None or not self._names(arguments, method):
            return problem
        return self.refusal(arguments, method)

    def _told(self, error: ValidationError | Problem, arguments: Mapping[str, Any], method: str | None) -> Problem:
        return self.completed(error, arguments, method) if isinstance(error, Problem) else self.refusal(arguments, method)

    def refusal(self, arguments: Mapping[str, Any], method: str | None, *, found: Iterable[FieldError] = ()) -> Problem:
        """422 with everything that is wrong: what was `found` already, and all that can be told of the arguments."""
        errors = list(found)
        paths = self._numbers.booleans(arguments)
        errors += (FieldError(self._pointer(path, method), "number_type", NOT_A_NUMBER) for path in paths)
        named = {error.pointer for error in errors}
        errors += (error for error in self._invalid(dict(arguments), method) if error.pointer not in named)
        return invalid_request(errors, known=self._operation.accepted_names(method))

    def _invalid(self, arguments: dict[str, Any], method: str | None) -> list[FieldError]:
        if self.direct is None:
            return self._names(arguments, method)
        try:
            self.direct.validate(arguments)
        except ValidationError as error:
            return field_errors(error, self._operation, method, arguments)
        except Problem as problem:
            return [*self._names(arguments, method), FieldError("", problem.code, problem.detail)]
        return []

    def _names(self, arguments: Mapping[str, Any], method: str | None) -> list[FieldError]:
        """Required arguments that are missing, and names that the tool does not take, by its schema alone."""
        operation = self._operation
        missing = [each.name for each in operation.parameters if each.required and each.name not in arguments]
        errors = [FieldError(self._pointer((name,), method), "missing", "is required") for name in missing]
        if not operation.accepts_unknown:
            known = operation.accepted_names(method)
            places = [operation.place_of(name, method) for name in arguments if name not in operation.by_name]
            errors += (unknown_field(place, wire, known[place]) for place, wire in places)
        return errors

    def _pointer(self, path: tuple[str | int, ...], method: str | None) -> str:
        name, *steps = path
        return pointer_to(*self._operation.place_of(str(name), method), *steps)
