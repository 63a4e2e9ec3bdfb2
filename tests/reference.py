"""Writes the pages of docs/ that follow from the code: `make reference`. tests/test_documents.py holds them against it."""

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache, partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr

from buildings import checkout, gateway, recorder
from buildings.cve.building import building as cve
from buildings.gateway.clients import Server, texts
from buildings.recorder.monitors import state_machine as recorder_states
from campus.cli import commands
from campus.config import BuildingTable, ProductTable, ToolTable, config_model
from campus.installed import installed_features
from campus.problems import EXPLANATIONS, FIXED

DOCS = Path(__file__).parents[1] / "docs"
SUBJECTS = (
    "campus.building",
    "campus.feature",
    "campus.steps",
    "campus.core",
    "campus.storage",
    "campus.caller",
    "campus.keys.makers",
    "campus.directory",
    "campus.layout",
    "campus.outbound",
    "campus.secrets",
    "campus.idempotency_keys",
    "campus.shares",
    "campus.observability",
    "campus.errors",
)
"""What buildings and features import beside `campus` itself, on its page."""
DOORS = ("campus", "campus.features.alerts", "campus.testing", "campus.features.chain", "twins")
OWN = ("campus", "twins", "buildings")
BUILDINGS = {"gateway": gateway.building, "cve": cve, "recorder": recorder.building, "checkout": checkout.building}
UNITS = (
    r"US dollars|HH:MM in UTC|seconds?|minutes?|days?|bytes|connections?|port|niceness"
    r"|messages|monitors|watches|reports|registrations|calls a minute|calls"
)
SECRETS = {
    "CAMPUS_DATABASE_PASSWORD": "The password of the PostgreSQL user in `[storage] url`.",
    **{name: text for feature in installed_features().values() for name, text in feature.variables.items()},
}


FAILURE = re.compile(r"\b[45]\d\d\b")  # Parsing takes long: only what has the status of one is parsed.
STATUS = {
    **dict.fromkeys(("key_expired", "key_revoked", "key_unknown", "payment_refused", "payment_unverified"), "402"),
    **dict.fromkeys(("login_required", "token_refused"), "401"),
    **{"taken_over": "409", "too_many_beats": "429", "upstream_refused": "that of the API"},
}
"""The codes whose status is not written beside them in the code."""


class Default:
    """Stands in a signature for a default that has no text in Python."""

    def __repr__(self) -> str:
        return "…"


DEFAULT = Default()


class Missing(Exception):
    """Something that a user can name has no text to document it with."""


@cache
def tree_of(module: ModuleType) -> ast.Module:
    return ast.parse(Path(inspect.getfile(module)).read_text())


def texts_after(body: list[ast.stmt]) -> dict[str, str]:
    found = {}
    for statement, after in pairwise(body):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        if isinstance(target, ast.Name) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found[target.id] = inspect.cleandoc(str(after.value.value))
    return found


def members_of(cls: type) -> dict[str, str]:
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith(OWN):
            (node,) = (each for each in ast.walk(tree_of(sys.modules[base.__module__])) if is_class(each, base))
            found |= texts_after(node.body)
    return found


def is_class(node: ast.AST, cls: type) -> bool:
    return isinstance(node, ast.ClassDef) and node.name == cls.__name__


def constant_text(module: ModuleType, name: str) -> str | None:
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and node.module and {"*", name} & {each.asname or each.name for each in node.names}:
            return constant_text(import_module(node.module), name)
    return texts_after(tree_of(module).body).get(name)


def plain(text: str) -> str:
    return re.sub(r"`[^`]*`|<", lambda found: "&lt;" if found[0] == "<" else found[0], text)


def one_line(text: str) -> str:
    return plain(" ".join(text.split())).replace("|", "\\|")


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def head(*titles: str) -> str:
    return row(*titles) + "|---" * len(titles) + "|\n"


# The keys of campus.toml


def type_of(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f'`"{value}"`' for value in arguments)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(type_of(each) for each in arguments if each is not type(None)))
    if origin in (tuple, frozenset):
        return "list"
    if origin is not None and hasattr(annotation, "__metadata__"):
        return type_of(annotation.__origin__)
    if origin is dict:
        return "table"
    return {bool: "true or false", int: "whole number", float: "number"}.get(annotation, "date" if "date" in str(annotation) else "text")


def unit_of(name: str, kind: str, text: str) -> str:
    found = re.search(UNITS, f"{name.replace('_', ' ')} {text}")
    if "number" not in kind:
        return found[0] if found and ("US" in found[0] or "UTC" in found[0]) else ""
    if not found:
        raise Missing(f"the number {name} has no unit: say in its docstring what is counted")
    per_minute = " a minute" if re.search(r"(per_|a |in a )minute", f"{name} {text}") and "minute" not in found[0] else ""
    return f"{found[0]}{per_minute}"


def default_of(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "none"
    if isinstance(value, tuple | frozenset):
        return f"`{json.dumps(sorted(value) if isinstance(value, frozenset) else value)}`"
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f'`"{value}"`' if isinstance(value, str) else f"`{value or '{}'}`"


def keys_of(model: type[BaseModel]) -> Iterator[str]:
    described = members_of(model)
    for name, field in model.model_fields.items():
        if field.exclude:
            continue
        if name not in described:
            raise Missing(f"the key {name} of {model.__name__} has no docstring")
        if SecretStr in (field.annotation, *get_args(field.annotation)):
            yield row(f"`{name}`", "secret", "", default_of(field), f"{one_line(described[name])} Refused here: see [Secrets](#secrets).")
            continue
        kind = type_of(field.annotation)
        yield row(f"`{name}`", kind, unit_of(name, kind, described[name]), default_of(field), one_line(described[name]))


def table_of(title: str, model: type[BaseModel], text: str) -> str:
    return f"\n## `[{title}]`\n\n{text}\n\n{head('key', 'type', 'unit', 'default', 'meaning')}{''.join(keys_of(model))}"


def configuration() -> str:
    """Every key of campus.toml, and every secret."""
    sections = {name: model for name, field in config_model().model_fields.items() if (model := model_in(field.annotation))}
    listed = {f"[{name}.{key}]": model for name, section in sections.items() for key, model in lists_in(section)}
    parts = [table_of(name, model, one_line((model.__doc__ or "").partition(": ")[2])) for name, model in {**sections, **listed}.items()]
    parts += [
        table_of("products.NAME", ProductTable, "A key that can be bought; `campus key issue NAME` makes one."),
        table_of("buildings.NAME", BuildingTable, "Opens a building. Keys beyond these are the building's own settings."),
        table_of("buildings.NAME.tools", ToolTable, 'Settings for each tool whose name matches: `"find_*" = { price = "0.01" }`.'),
    ]
    secrets = dict(SECRETS)
    for name, building in BUILDINGS.items():
        model = building.settings
        if not model.model_fields:
            continue
        parts.append(table_of(f"buildings.{name}", model, one_line(model.__doc__ or "")))
        described = members_of(model)
        secrets |= {
            f"CAMPUS_{name}_{key}".upper(): described[key]
            for key, field in model.model_fields.items()
            if SecretStr in get_args(field.annotation)
        }
    rows = "".join(row(f"`{name}`", one_line(text)) for name, text in secrets.items())
    return f"{''.join(parts)}\n## Secrets\n\nThey come from the environment only.\n\n{head('variable', 'meaning')}{rows}"


def lists_in(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """The keys of a table that take a list of tables, with the form of each."""
    for key, field in model.model_fields.items():
        annotation: Any = field.annotation
        while get_origin(annotation) is not None and get_origin(annotation) not in (Union, UnionType):
            if (found := model_in(annotation)) is not None:
                break
            annotation = get_args(annotation)[0]
        if (found := model_in(annotation)) is not None and get_origin(field.annotation) is tuple:
            yield key, found


def model_in(annotation: Any) -> type[BaseModel] | None:
    candidates = [annotation, *(get_args(annotation) if get_origin(annotation) in (Union, UnionType) else ())]
    return next((each for each in candidates if isinstance(each, type) and issubclass(each, BaseModel)), None)


# Commands, codes, clients


def command_pages() -> str:
    """Every command, by cyclopts."""
    text = commands().generate_docs(output_format="markdown", heading_level=1)
    first, rest = text.partition("\n## campus serve")[1:]  # before it are lists of what follows
    usage = re.compile(r"(^#+ (campus [\w -]+)\n\n```console\n)[^\[A-Z\n]*", re.MULTILINE)  # a command in a group does not know its group
    return usage.sub(r"\1\2 ", f"{first}{rest.rstrip()}\n")


def statuses() -> Mapping[str, str]:
    found: dict[str, set[str]] = {}
    for package in OWN:
        for path in sorted((DOCS.parent / package).rglob("*.py")):
            source = path.read_text()
            for node in ast.walk(ast.parse(source)) if FAILURE.search(source) else ():
                for status, code in stated(node):
                    if isinstance(status, int) and isinstance(code, str) and 400 <= status <= 599:
                        found.setdefault(code, set()).add(str(status))
    fixed = {code: str(problem.status) for code, problem in FIXED.items()}
    return STATUS | fixed | {code: ", ".join(sorted(values)) for code, values in found.items()}


OF_FEATURES = [each.opened.problems for each in installed_features().values() if each.building]
OWN_CODES = {**EXPLANATIONS, **{code: text for problems in OF_FEATURES for code, text in problems.items()}}
"""Those of the core and of every feature."""


def stated(node: ast.AST) -> list[tuple[object, object]]:
    pairs: list[tuple[ast.AST, ast.AST | None]] = []
    match node:
        case ast.Call(args=[status, code, *_]):
            pairs = [(status, code)]
        case ast.Dict():
            for key, value in zip(node.keys, node.values, strict=True):
                parts = value.elts if isinstance(value, ast.Tuple) else value.args if isinstance(value, ast.Call) else []
                alone = [value] if isinstance(value, ast.Constant) and isinstance(value.value, int) else []
                pairs += [(status, key) for status in (parts or alone)[:1]]
    return [(getattr(status, "value", None), getattr(code, "value", None)) for status, code in pairs]


def codes() -> str:
    """Every code of a problem, with its status and what to do."""
    status = statuses()
    parts = []
    for name, problems in {"Every building": OWN_CODES, **{name: each.problems for name, each in BUILDINGS.items()}}.items():
        if problems:
            rows = [row(f"`{code}`", status[code], one_line(text)) for code, text in sorted(problems.items())]
            parts.append(f"\n## {name}\n\n{head('code', 'status', 'meaning, and what to do')}{''.join(rows)}")
    return "".join(parts)


def clients() -> str:
    """How each MCP client adds a server, without a key and with one."""
    address = "http://localhost:8000/hello/mcp"
    bare = Server("hello", "Hello", address, sends_key=False, connector=address)
    parts = []
    for name, client in texts().clients.items():
        keyed = bare._replace(sends_key=True, connector=None)
        free, paid = (texts().setup(name, [server], signs_in=False) for server in (bare, keyed))
        parts.append(f"\n## {client.name}\n\nWithout a key ({free.where}):\n\n{fenced(free.text)}\n")
        parts.append(f"With a key, which is kept {paid.key} ({paid.where}):\n\n{fenced(paid.text)}\n" if paid.key else "")
        parts.append(f"The client's own page: <{client.documentation}>.\n")
    return "".join(parts)


def fenced(text: str) -> str:
    return f"```text\n{text}\n```\n"


# Public names


def prose(text: str) -> str:
    shown: list[str] = []
    for line in inspect.cleandoc(text).splitlines():
        in_list = bool(shown) and shown[-1].startswith(("- ", "  "))
        if line.startswith("`") and (not shown or shown[-1].endswith((".", ":")) or not shown[-1]):
            shown += [f"- {line}"] if in_list or not shown or not shown[-1] else ["", f"- {line}"]
        else:
            shown.append(line)
    return "\n".join(line if line.startswith("    ") else plain(line) for line in shown)


def signature_of(value: Any) -> str:
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    shown = []
    for each in found.parameters.values():
        if each.name not in ("self", "cls"):
            hidden = each.default is not each.empty and repr(each.default).startswith("<")
            shown.append(each.replace(annotation=each.empty, default=DEFAULT if hidden else each.default))
    return str(found.replace(parameters=shown, return_annotation=inspect.Signature.empty))


def public_members(cls: type) -> Iterator[str]:
    described = {name: field.description for name, field in getattr(cls, "model_fields", {}).items() if field.description}
    for name, text in (described | members_of(cls)).items():
        if not name.startswith("_"):
            yield row(f"`{name}`", one_line(text))
    for name in dir(cls):
        member = inspect.getattr_static(cls, name)
        function = member.fget if isinstance(member, property) else inspect.unwrap(getattr(member, "__func__", member))
        if name.startswith("_") or name == "model_post_init" or not getattr(function, "__module__", "").startswith(OWN):
            continue
        if inspect.isfunction(function) and function.__doc__:
            shown = name if isinstance(member, property) else name + signature_of(function)
            yield row(f"`{shown}`", one_line(function.__doc__.strip()))


def entry(door: str, name: str) -> str:
    value = getattr(import_module(door), name)
    home = getattr(value, "__module__", None) or ""
    if inspect.isclass(value) or inspect.isfunction(value):
        if not home.startswith(OWN):
            return f"\n### {name}\n\n`{home}.{name}`, offered here so that a building imports from one place.\n"
        text = value.__doc__ or ""
        shown = f"{'async ' if inspect.iscoroutinefunction(value) else ''}{name}{signature_of(value)}"
        members = "".join(public_members(value)) if inspect.isclass(value) else ""
    else:
        text, members = constant_text(import_module(door), name) or "", ""
        shown = f"{name} = {value!r}" if isinstance(value, int | str) and len(repr(value)) < 90 else name
    if not text:
        raise Missing(f"{door}.{name} has no docstring")
    table = f"\n{head('member', 'meaning')}{members}" if members else ""
    return f"\n### {name}\n\n```python\n{shown}\n```\n\n{prose(text)}\n{table}"


def public_names(door: str) -> str:
    """Every name of a front door, from its docstring."""
    module = import_module(door)
    return "".join(entry(door, name) for name in module.__all__)


def public_modules() -> str:
    """Every name that a building imports: those of campus itself, then the further ones of each subject."""
    names = set(import_module("campus").__all__)
    sections = []
    for subject in SUBJECTS:
        module = import_module(subject)
        entries = "".join(entry(subject, name) for name in module.__all__ if name not in names)
        sections.append(f"\n## `{subject}`\n\n{plain((module.__doc__ or '').partition(chr(10))[0])}\n{entries}")
    return public_names("campus") + "".join(sections)


def states() -> str:
    """Every state and event of a monitor in the words of the state machine, and what each event does in each state."""
    machine = recorder_states
    modes, events = get_args(machine.Mode), get_args(machine.Event)
    texts_of = (machine.__doc__ or "").split(" by these events:")
    tables = ["".join(_said(text, name) for name in names) for text, names in zip(texts_of, (modes, events), strict=True)]
    changes = "".join(row(f"`{event}`", *(_change(machine.TRANSITIONS.get((mode, event))) for mode in modes)) for event in events)
    return (
        f"\n{head('state', 'what it means')}{tables[0]}\n{head('event', 'what happened')}{tables[1]}"
        f"\n{head('event', *(f'in `{mode}`' for mode in modes))}{changes}"
    )


def _said(text: str, name: str) -> str:
    found = re.search(rf"^    {name} {{2,}}(\S.*)$", text, flags=re.MULTILINE)
    if found is None:
        raise Missing(f"the state machine does not say what {name} is")
    return row(f"`{name}`", plain(found[1]))


def _change(transition: Any) -> str:
    if transition is None:
        return ""
    return f"{transition.to}, alert {transition.alert}" if transition.alert else str(transition.to)


PAGES = {
    "beats.md": states,
    "configuration.md": configuration,
    "commands.md": command_pages,
    "errors.md": codes,
    "clients.md": clients,
    **{f"api-{door.rpartition('.')[2]}.md": partial(public_names, door) for door in DOORS},
    "api-campus.md": public_modules,
}
MARK = "[//]: # (From here on this page is made from the code by make reference.)\n"


def page(name: str) -> str:
    written = (DOCS / name).read_text()
    before, mark, after = written.partition(MARK)
    if not mark:
        raise Missing(f"docs/{name} lacks the line {MARK!r}")
    following = after.rpartition("\n**Next:**")
    return f"{before}{MARK}{PAGES[name]()}" + (f"\n**Next:**{following[2]}" if following[1] else "")


if __name__ == "__main__":
    for name in PAGES:
        (DOCS / name).write_text(page(name))
