"""[discovery] of campus.toml."""

from pydantic import Field

from campus.feature import Feature, Settings


class DiscoveryTable(Settings):
    """[discovery]: what crawlers and registries are told of the service."""

    indexed: bool = True
    """False keeps search engines and AI crawlers out, in robots.txt."""
    ai_training: bool = False
    """True lets AI companies train on what their crawlers read, in robots.txt."""
    namespace: str | None = Field(default=None, pattern=r"^[a-zA-Z0-9][a-zA-Z0-9.-]{0,98}[a-zA-Z0-9]$", examples=["io.github.acme"])
    """The servers' namespace in the MCP registry, such as io.github.acme; default: the public address in reverse."""
    registry_proof: str | None = Field(default=None, pattern=r"^v=MCPv1; k=[a-z0-9]+; p=[A-Za-z0-9+/=_-]+$", examples=["v=MCPv1; …"])
    """The line that `mcp-publisher login http` asks for, served at /.well-known/mcp-registry-auth."""
    glama_claim: str | None = Field(default=None, pattern=r"^glama_claim_[A-Za-z0-9_-]+$", examples=["glama_claim_…"])
    """The claim that Glama asks for, served at /.well-known/glama.json."""


feature = Feature(
    "campus.features.discovery.routes:building",
    settings=DiscoveryTable,
    always=True,
    paths=["/llms.txt", "/robots.txt", "/security.txt", "/sitemap.xml"],
)
