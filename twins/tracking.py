"""Query parameters that advertising and mailing services add to links as they are shared; they say nothing to a tool. Pure."""

from collections.abc import Collection
from urllib.parse import unquote_to_bytes

PREFIX = b"utm_"
"""Campaign parameters of analytics programs: https://support.google.com/analytics/answer/10917952."""
NAMES = frozenset(
    (
        *(b"gclid", b"gclsrc", b"gbraid", b"wbraid", b"dclid"),  # Google Ads and Campaign Manager
        b"fbclid",  # Facebook
        b"igshid",  # Instagram
        b"msclkid",  # Microsoft Advertising
        b"twclid",  # X
        b"ttclid",  # TikTok
        b"yclid",  # Yandex Direct
        *(b"mc_cid", b"mc_eid"),  # Mailchimp
        *(b"_hsenc", b"_hsmi"),  # HubSpot
        b"mkt_tok",  # Marketo
    )
)
"""Names that only these services use. Browsers strip about the same (Firefox's query parameter stripping, Safari's link tracking
protection). `ref` is not among them: sites use it for meanings of their own, so it may be a mistake that the caller should see."""


def without_tracking(query: bytes, *, known: Collection[str]) -> bytes:
    """The query string without such parameters, whatever their values hold; `known` names those that the tool takes itself."""
    own = {name.encode() for name in known}
    parts = [(part, unquote_to_bytes(part.partition(b"=")[0])) for part in query.split(b"&")]
    return b"&".join(part for part, name in parts if name in own or not (name.startswith(PREFIX) or name in NAMES))
