"""Notes how each call ended."""

from typing import Any

from campus.context import Context
from campus.features.audit_log.log import AuditLog
from campus.steps import PAID, GatedCall, Step


class Noted(Step):
    """The step `audit_log`, which follows all that know more of a call."""

    name = "audit_log"
    after = ("limits", "quota", "sale")

    def __init__(self, log: AuditLog) -> None:
        self._log = log

    def ended(self, call: GatedCall[Any], context: Context, outcome: str) -> None:
        """See Step."""
        amount, request_id = PAID.of(context), call.scope.get("request_id")
        self._log.note(actor_of(context), context.site.name, call.tool, outcome, frame=call.frame, amount=amount, request_id=request_id)


def actor_of(context: Context) -> str | None:
    """Who calls: the payer, or the id of the key that was sent, valid or not; None without either."""
    if context.caller is not None and context.caller.payer is not None:
        return context.caller.payer
    key = context.credential and context.credential.key
    return key.id if key else None
