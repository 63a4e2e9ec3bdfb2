"""[mail] of campus.toml."""

from typing import Literal

from pydantic import Field

from campus.feature import Feature, Settings

PASSWORD = "CAMPUS_MAIL_PASSWORD"  # noqa: S105  # the variable's name, not a password


class MailTable(Settings):
    """[mail]: the SMTP server that takes the service's e-mail; its password is CAMPUS_MAIL_PASSWORD."""

    host: str = Field(pattern=r"^[A-Za-z0-9.:-]+$", examples=["smtp.example"])
    """The server's name or address."""
    port: int = Field(default=587, ge=1, le=65535)
    """The server's port."""
    sender: str
    """An address, or `Name <address>`."""
    username: str | None = None
    """Default: the sender's address, when there is a password."""
    tls: Literal["implicit", "starttls", "none"] | None = None
    """Default: implicit on port 465, starttls with a password, else whatever the server offers."""


feature = Feature(
    "campus.features.mail.opened:building", settings=MailTable, variables={PASSWORD: "The password of the SMTP server in `[mail]`."}
)
