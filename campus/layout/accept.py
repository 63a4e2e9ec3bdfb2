"""Chooses the format of a page (HTML, Markdown or JSON) from the Accept header. Pure."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from starlette.requests import Request

Form = Literal["json", "html", "markdown"]
MEDIA_TYPES: dict[Form, tuple[str, ...]] = {
    "json": ("application/json", "application/problem+json"),
    "html": ("text/html", "application/xhtml+xml"),
    "markdown": ("text/markdown", "text/x-markdown"),
}
LONGEST_ACCEPT = 1_000  # How many characters of an Accept header are read.


def form_for(request: Request, offered: Sequence[Form]) -> Form:
    """The form to send; `offered` are those that the page has, the preferred one first."""
    return chosen_form(request.headers.get("accept", "")[:LONGEST_ACCEPT], tuple(offered))


def page_form(accept: bytes | None) -> Form | None:
    """HTML or Markdown for an Accept header that names it and prefers it to JSON; None for any other, such as that of a program."""
    if accept is None or b"text/" not in accept:
        return None
    form = chosen_form(accept.decode("latin-1")[:LONGEST_ACCEPT], ("json", "html", "markdown"))
    return None if form == "json" else form


@lru_cache(maxsize=256)
def chosen_form(accept: str, offered: tuple[Form, ...]) -> Form:
    """The offered form with the highest q. Of equal ones, a named one wins over one that */* covers, then the first of the header.

    A header that accepts none of them receives the first: a page in another form is of more use than 406.
    """
    ranges = _ranges(accept)
    ranked = sorted(offered, key=lambda form: _fit(form, ranges), reverse=True)  # sorted is stable
    return ranked[0]


def _ranges(accept: str) -> list[tuple[str, float]]:
    found = []
    for each in accept.split(","):
        name, *parameters = (part.strip().lower() for part in each.split(";"))
        q = next((parameter[2:] for parameter in parameters if parameter.startswith("q=")), "1")
        try:
            found.append((name, min(max(float(q), 0.0), 1.0)))
        except ValueError:
            continue
    return [one for one in found if one[0]]


def _fit(form: Form, ranges: Sequence[tuple[str, float]]) -> tuple[float, int, int]:
    """q of the most specific range that covers the form, how specific that range is, and how early it comes."""
    names = MEDIA_TYPES[form]
    wanted = dict.fromkeys(names, 2) | {f"{names[0].partition('/')[0]}/*": 1, "*/*": 0}
    matching = [(wanted[name], -place, q) for place, (name, q) in enumerate(ranges) if name in wanted]
    if not matching:
        return 0.0, 0, 0
    specificity, place, q = max(matching)
    return q, specificity, place
