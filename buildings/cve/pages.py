"""The pages of the daily list."""

from buildings.cve.latest import CveSite
from buildings.cve.server import brief_teaser


async def top_three(site: CveSite) -> str:
    """Today's first three, for the start page."""
    return site.part("top_three.html", teaser=await brief_teaser(site=site))
