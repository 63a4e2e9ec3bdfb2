"""What campus sends to others: HTTP to the URLs of callers and of the operator, and e-mail."""

from campus.outbound.http_clients import GuardedClient
from campus.outbound.mail import Mail

__all__ = ["GuardedClient", "Mail"]
