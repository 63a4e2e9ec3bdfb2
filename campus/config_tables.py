"""Tables of campus.toml that stand for themselves: the base of all, [storage], [mail], [web], [connect] and [discovery]."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from campus.addresses import read_contact, read_exempt_host, read_number, read_origin


class Table(BaseModel):
    """Base of every table."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def is_no_boolean_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true and false for a number, before pydantic converts them to 1 and 0."""
        return read_number(value, cls.model_fields[str(info.field_name)].annotation)


class StorageTable(Table):
    """[storage]: `sqlite:DIRECTORY`, relative to campus.toml, or `postgresql://user@host/database`."""

    url: str = "sqlite:data"


class MailTable(Table):
    """[mail]: the SMTP server that takes the service's e-mail; its password is CAMPUS_MAIL_PASSWORD."""

    host: str = Field(pattern=r"^[A-Za-z0-9.:-]+$")
    port: int = Field(default=587, ge=1, le=65535)
    sender: str
    """An address, or `Name <address>`."""
    username: str | None = None
    """Default: the sender's address, when there is a password."""
    tls: Literal["implicit", "starttls", "none"] | None = None
    """Default: implicit on port 465, starttls with a password, else whatever the server offers."""


class WebTable(Table):
    """[web]: the rules for URLs that callers send."""

    allowed_hosts: frozenset[Annotated[str, AfterValidator(read_exempt_host)]] = frozenset()
    """Exempt from the address rules, with http and any port too: for tests and local use."""


class ConnectTable(Table):
    """[connect]: lets clients in that speak OAuth only, such as chat apps, by a key that their user types on a page."""

    url: Annotated[str, AfterValidator(read_origin)] | None = None
    """A host of its own for it, such as https://connect.example.com; default: /connect below the public URL."""
    client_documents: bool = True
    """Whether a client's id may be the URL of its metadata document. False where campus cannot reach the internet: clients register."""


class DiscoveryTable(Table):
    """[discovery]: what crawlers and registries are told of the service."""

    contact: Annotated[str, AfterValidator(read_contact)] | None = None
    """Where vulnerabilities are reported: opens /.well-known/security.txt."""
    indexed: bool = True
    """False keeps search engines and AI crawlers out, in robots.txt."""
    ai_training: bool = False
    """True lets AI companies train on what their crawlers read, in robots.txt."""
    namespace: str | None = Field(default=None, pattern=r"^[a-zA-Z0-9][a-zA-Z0-9.-]{0,98}[a-zA-Z0-9]$")
    """The servers' namespace in the MCP registry, such as io.github.acme; default: the public address in reverse."""
    registry_proof: str | None = Field(default=None, pattern=r"^v=MCPv1; k=[a-z0-9]+; p=[A-Za-z0-9+/=_-]+$")
    """The line that `mcp-publisher login http` asks for, served at /.well-known/mcp-registry-auth."""
    glama_claim: str | None = Field(default=None, pattern=r"^glama_claim_[A-Za-z0-9_-]+$")
    """The claim that Glama asks for, served at /.well-known/glama.json."""
