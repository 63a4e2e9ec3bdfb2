"""`switched_back PORT PART CONFIG` is `campus serve` with a part of its HTTP protocol switched back to uvicorn's own."""

import sys
from collections.abc import Callable, Mapping

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from campus.cli import main
from campus.http import protocol, server


def nothing() -> None:
    """As it is."""


def responses() -> None:
    """Head and body written apart, each header searched by itself."""
    vars(protocol)["ResponseCycle"] = RequestResponseCycle


def connections() -> None:
    """All of uvicorn's own: no limit on heads, connections or pipelining either."""
    vars(server)["of_listener"] = lambda *_, **__: HttpToolsProtocol


PARTS: Mapping[str, Callable[[], None]] = {each.__name__: each for each in (nothing, responses, connections)}

if __name__ == "__main__":
    port, part, config = sys.argv[1:]
    PARTS[part]()
    sys.argv[1:] = ["serve", "--config", config, "--port", port, "--admin", "off"]
    main()
