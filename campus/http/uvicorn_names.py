"""The names of uvicorn that it does not document and that LimitedProtocol and ResponseCycle use; without one, its h11 protocol serves."""

import asyncio
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
except ImportError:  # `missing_names` says so, and nothing derived from them is used
    HttpToolsProtocol = RequestResponseCycle = object  # type: ignore[assignment,misc]  # a class with none of the names

__all__ = ["HttpToolsProtocol", "RequestResponseCycle", "missing_names"]

PROTOCOL = """
    connection_made connection_lost data_received shutdown resume_writing on_message_begin on_url on_header on_headers_complete
    on_body on_message_complete on_response_complete _start_asgi_task _should_upgrade app client connections cycle
    expect_100_continue flow headers logger access_logger loop parser pipeline scope server_state tasks timeout_keep_alive
    transport
""".split()  # noqa: SIM905  # a list literal would be a name per line
ARGUMENTS = """
    scope transport flow logger access_logger access_log default_headers message_event expect_100_continue keep_alive
    on_response
""".split()  # noqa: SIM905  # a list literal would be a name per line
CYCLE = """
    run_asgi send scope transport flow default_headers message_event on_response disconnected keep_alive
    waiting_for_100_continue more_body response_started response_complete chunked_encoding expected_content_length
""".split()  # noqa: SIM905  # a list literal would be a name per line


def missing_names(app: ASGIApp) -> list[str]:
    """What this uvicorn lacks of them, or an error's text if it makes a connection or a response of other arguments."""
    try:
        config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None)
        protocol: Any = HttpToolsProtocol(config, ServerState(), {}, asyncio.get_running_loop())
        cycle: Any = RequestResponseCycle(**dict.fromkeys(ARGUMENTS))  # type: ignore[arg-type]  # nothing is sent
    except (TypeError, AttributeError) as error:
        return [str(error)]
    return [name for owner, names in ((protocol, PROTOCOL), (cycle, CYCLE)) for name in names if not hasattr(owner, name)]
