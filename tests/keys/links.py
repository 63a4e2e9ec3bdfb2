"""Links that open without a key: a building as a stranger would write it, whose links end with the key or the client that made them."""

from dataclasses import dataclass
from datetime import datetime
from secrets import token_bytes

from fastmcp import FastMCP

from campus import Building, Caller, CurrentCaller, CurrentSite, Page, Problem, Request, Response, Settings, Site, access
from campus.building import Holding, Holdings, ToolCall
from campus.caller import Key
from campus.secrets import random_id

mcp = FastMCP("Links", instructions="Links that open without a key.")


@dataclass
class Link:
    """A link, and whose it is."""

    lineage: str
    made_by: str
    made_at: datetime


LinkSite = Site[Settings, dict[str, Link]]


@mcp.tool(meta=access())
async def share(site: LinkSite = CurrentSite(), caller: Caller = CurrentCaller()) -> str:
    """Make a link that opens without a key, until unshare or until the key or client that makes it has ended."""
    assert caller.key is not None, "the tool needs a key"
    assert caller.maker is not None, "a key is its own maker"
    link_id = random_id("link", token_bytes)
    site.state[link_id] = Link(caller.key.lineage, caller.maker, site.now())
    return link_id


async def opened(request: Request, site: LinkSite) -> Response:
    """What is at a link."""
    link = site.state.get(request.path_params["link"])
    if link is None or (await site.keys.maker(link.made_by)).has_ended(site.now()):
        raise Problem(404, "no_such_link", "there is no such link: it is wrong, or the key or client that made it has ended")
    return Response("shared")


@mcp.tool(meta=access())
async def unshare(link: str, site: LinkSite = CurrentSite(), caller: Caller = CurrentCaller()) -> str:
    """End a link."""
    del site.state[_own(link, site, caller)]
    return link


@mcp.tool(meta=access())
async def keep(link: str, site: LinkSite = CurrentSite(), caller: Caller = CurrentCaller()) -> str:
    """Have a link go on whose maker has ended."""
    own = site.state[_own(link, site, caller)]
    if (await site.keys.maker(own.made_by)).ends_at is None:
        own.made_by = str(caller.maker)
    return link


async def links_of(site: LinkSite, key: Key) -> list[Holding]:
    """The key's links."""
    own = [(name, link) for name, link in site.state.items() if link.lineage == key.lineage]
    return [
        Holding(
            **{"id": name, "kind": "link", "name": name, "made_at": link.made_at, "made_by": link.made_by},
            end=ToolCall("unshare", {"link": name}),
            keep=ToolCall("keep", {"link": name}),
        )
        for name, link in own
    ]


def _own(name: str, site: LinkSite, caller: Caller) -> str:
    link = site.state.get(name)
    if link is None or caller.key is None or link.lineage != caller.key.lineage:
        raise Problem(404, "no_such_link", "your key has no such link")
    return name


building = Building(
    mcp,
    state=lambda site: dict[str, Link](),
    pages=[Page("GET /links/{link}", opened)],
    holdings=Holdings(links_of, what="links"),
    problems={"no_such_link": "There is no such link."},
)
