"""What each problem code of this building means; served at /errors/<code>."""

from collections.abc import Mapping

PROBLEMS: Mapping[str, str] = {
    "monitor_not_found": "No monitor has this id, or it is not yours. The two are not told apart. Check monitor_id and secret, or the key.",
    "taken_over": "Another agent has taken over this monitor, and its old secret is invalid. Stop your work.",
    "stale_seq": "A capsule with a higher seq was stored before; this one was not.",
    "seq_reused": "A capsule with this seq and another content was stored before; give each capsule a seq above the last.",
    "not_dead": "Only a monitor whose state is dead can be taken over.",
    "target_in_use": "Without a key, each alert target can have one monitor, and this target has one already.",
    "monitor_limit_reached": "The key, or without a key the address at this host, has the maximum number of monitors. Delete one first.",
    "too_many_registrations": "This key or address sent too many registrations in a minute. Try again after the time in Retry-After.",
    "target_refused": "The webhook's address breaks a rule; `detail` names it.",
    "no_mail_here": "This service sends no e-mail. Send alert_webhook instead.",
    "too_many_beats": "The monitor sent too many beats in this minute. Send the next one after the time in Retry-After.",
    "too_many_confirmations": "The key has had the maximum number of confirmation e-mails sent today. Continue tomorrow.",
    "badge_not_found": "No badge has this address. register_monitor and fleet_status return it as badge_url.",
    "link_not_found": "The link is not valid. Check that it was copied completely.",
    "capsule_too_large": "A capsule is at most 32,768 bytes of compact JSON. The heartbeat was recorded; the last capsule is kept.",
    "capsule_not_storable": "The capsule cannot be stored; `detail` says why. The heartbeat was recorded; the last capsule is kept.",
}
