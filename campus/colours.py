"""The one accent colour of an operator: what of it can be read on light and on dark pages. Pure."""

import re
from typing import NamedTuple

HEX = re.compile("#[0-9a-f]{6}")
LIGHT, DARK = "#f1f2ef", "#252b33"
"""The least favourable grounds of campus.css for words in the accent colour."""
READABLE = 4.5
"""The contrast that WCAG 2.2 asks for (1.4.3, AA)."""
MOST_BLACK = 0.5
"""As much black may be mixed into a colour: with more, yellow is brown and white is grey. Any can be lightened enough for dark pages."""


class Accent(NamedTuple):
    """The colour on light pages, and on dark ones."""

    light: str
    dark: str


ACCENT = Accent("#0b5cad", "#82bbff")
"""That of campus.css."""


def read_accent(text: str) -> Accent:
    """The accent colour in its two readable variants; ValueError for one that cannot be read on one of the grounds."""
    colour = text.lower()
    if not HEX.fullmatch(colour):
        raise ValueError('write it as six hexadecimal digits, such as "#0b5cad"')
    black, light = _readable(colour, LIGHT, "#000000")
    if black > MOST_BLACK:
        raise ValueError(f"{colour} cannot be read on light pages; take a darker one, such as {light}")
    return Accent(light, _readable(colour, DARK, "#ffffff")[1])


def contrast(one: str, other: str) -> float:
    """From 1 to 21, as WCAG counts it."""
    brighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def _readable(colour: str, ground: str, towards: str) -> tuple[float, str]:
    """The least share of `towards` with which the colour can be read on the ground, and that mixture."""
    shares = (step / 50 for step in range(51))
    return next((share, mixed) for share in shares if contrast(mixed := _mixed(colour, towards, share), ground) >= READABLE)


def _channels(colour: str) -> list[int]:
    return [int(colour[place : place + 2], 16) for place in (1, 3, 5)]


def _mixed(colour: str, towards: str, share: float) -> str:
    mixed = [round(one + (other - one) * share) for one, other in zip(_channels(colour), _channels(towards), strict=True)]
    return "#{:02x}{:02x}{:02x}".format(*mixed)


def _luminance(colour: str) -> float:
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in (each / 255 for each in _channels(colour))]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
