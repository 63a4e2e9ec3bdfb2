"""Why a server answers otherwise over campus than bare: all reasons that there are."""

from as_bare import Reason

REASONS = (
    Reason("*", "* hello", ".result*.serverInfo.icons.*", "the service's icon, where the server has none"),
    Reason("*", "* hello", ".result*.serverInfo.websiteUrl", "the service's address, where the server has none"),
    Reason("*", "* tools/list", ".result.tools.*.description", "says what a call needs"),
    Reason("*", "* tools/list", ".result.tools.*.outputSchema*", "allows campus's refusals"),
    Reason("*", "* tool *", ".refused.invalid_request", "the caller's own words for an argument instead of pydantic's"),
    Reason("*", "HTTP tool * {*: {\"wrong\": *", "*", "an address holds text"),
)
