"""A server in one file: `./hello.py:mcp`, or `./hello.py` if the file has one server only."""

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from fastmcp import FastMCP
from mcp.server.mcpserver import MCPServer

from campus.building import Building
from campus.errors import LoadError

PACKAGE = "__init__"


def server_in(path: Path, name: str | None) -> tuple[str, Any]:
    """What the file has under this name, with the name: by default its only Building, or else its only server.

    LoadError says what the file has instead; whatever it raises while it is imported is raised.
    """
    if not path.is_file():
        raise LoadError(f"there is no {path}; name a file with a FastMCP server, such as ./hello.py:mcp")
    module = import_file(path)
    if name is not None:
        if (found := getattr(module, name, None)) is None:
            raise LoadError(f"{path} has no {name!r}; name a FastMCP server, a Building, or a function that makes a server")
        return name, found
    names = _names_of(module, Building) or _names_of(module, FastMCP, MCPServer)
    if not names:
        raise LoadError(f'{path} has no FastMCP server and no Building; write mcp = FastMCP("…"), or name a function that makes a server')
    if len(names) > 1:
        raise LoadError(f"{path} has several servers: {', '.join(names)}; name one, as in {path.name}:{names[0]}")
    return names[0], getattr(module, names[0])


def _names_of(module: ModuleType, *kinds: type) -> list[str]:
    found = {id(value): name for name, value in reversed(vars(module).items()) if isinstance(value, kinds)}
    return sorted(found.values())


def import_file(path: Path) -> ModuleType:
    """The file as a module, as if Python had been started with it: its folder comes first on the path. It is run once.

    Where another module has its name, such as one of Python's own, it gets its whole path as its name. Of a package, `path` is
    __init__.py.
    """
    folder, name = (path.parent.parent, path.parent.name) if path.stem == PACKAGE else (path.parent, path.stem)
    known = sys.modules.get(name)
    if name in sys.stdlib_module_names or (known is not None and getattr(known, "__file__", None) != str(path)):
        name = "_".join(re.findall(r"\w+", str(path)))
    if name in sys.modules:
        return sys.modules[name]
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
