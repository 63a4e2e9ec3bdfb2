"""The harbour's server alone, for a campus in another process."""

from pages.harbour import make_harbour

mcp = make_harbour().server
