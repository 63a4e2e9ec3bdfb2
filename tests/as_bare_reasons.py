"""Why a server answers otherwise over campus than bare: all reasons that there are. One that is not needed any more is a fault too."""

from as_bare import Reason

OWN_CHECK = "campus checks arguments before the author's middleware and its API are asked"
MASKED = "the text of an exception is in the log alone"

REASONS = (
    Reason("*", "* hello", ".result*serverInfo.icons.*", "the service's icon, where the server has none"),
    Reason("*", "* hello", ".result*serverInfo.websiteUrl", "the service's address, where the server has none"),
    Reason("*", "* tools/list", ".result.tools.*.description", "says what a call needs"),
    Reason("*", "* tools/list", ".result.tools.*.outputSchema*", "allows campus's refusals, in FastMCP's tools"),
    Reason("*", "* tool *", ".refused.invalid_request", "names the caller's own argument, where pydantic's words name its classes"),
    Reason("*", 'HTTP tool * {*: {"wrong": *', "*", "an address holds text"),
    Reason("nameless", "*", "*serverInfo.name", "FastMCP makes up a name for each"),
    *(Reason(name, "* tool *", ".refused.internal_error", MASKED) for name in ("failures", "masked")),
    Reason("failures", "* prompt *", ".error.message", MASKED),
    Reason("failures", "* read *", ".error.message", MASKED),
    Reason("skills", "* read *", ".error.message", MASKED),
    Reason("in_code", "* tool execute *", ".error", MASKED),
    Reason("all_as_tools", "* tool *", ".refused.not_found", "says what there is not, without FastMCP's sentence before it"),
    Reason("an_api", "* tool *", "*", OWN_CHECK),
    Reason("an_api", 'HTTP tool * {*"unheard": 1}', "*", "an address has no unknown arguments"),
    Reason("middleware_errors", "* tool *", "*", OWN_CHECK),
    Reason("middleware_errors", "* no such tool", "*", "campus knows the tools, and no middleware is asked for another"),
    Reason("contexts", "HTTP tool names *", "*", "over HTTP there is no request of MCP"),
    Reason("forms", "HTTP tool made_links *", "data._content.*", "links beside structured content have a member of their own"),
    Reason("of_the_sdk", "* hello", ".result.capabilities.*", "what campus can do for the server's clients"),
    Reason("of_the_sdk", "* tool book *", "*", "a caller who cannot be asked gets a refusal"),
    Reason("of_the_sdk", "* no such *", "*", "FastMCP's words and codes"),
    Reason("of_the_sdk", "2025-11-25 prompt report 0", ".error.*", "the code that newer clients get"),
    Reason("of_the_sdk", 'HTTP tool * {*"unheard": 1}', "*", "an address has no unknown arguments"),
)
