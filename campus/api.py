"""What `from campus import …` gives: what every building needs. The rest is in the modules that docs/api-campus.md lists."""

from starlette.requests import Request
from starlette.responses import Response

from campus.building import Building, Check, Job, Page, Service
from campus.caller import Caller
from campus.feature import Settings
from campus.pricing import access, free
from campus.site import CurrentCaller, CurrentSite, Site
from twins import Problem, route

__all__ = [
    "Building",
    "Caller",
    "Check",
    "CurrentCaller",
    "CurrentSite",
    "Job",
    "Page",
    "Problem",
    "Request",
    "Response",
    "Service",
    "Settings",
    "Site",
    "access",
    "free",
    "route",
]
