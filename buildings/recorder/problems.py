"""What each problem code of this building means; served at /errors/<code>."""

from collections.abc import Mapping

PROBLEMS: Mapping[str, str] = {
    "monitor_not_found": "There is no such monitor, or the secret is not its own: which of the two is not told.",
    "taken_over": "Another agent took this monitor over; its secret is another now.",
    "stale_seq": "A capsule with a higher seq was stored before; this one was not.",
    "seq_reused": "A capsule with this seq and another content was stored before; give each capsule a seq above the last.",
    "not_dead": "Only a dead monitor can be taken over.",
    "target_in_use": "Without a key each alert target has one monitor; this target has one.",
    "monitor_limit_reached": "The key, or without a key the address at this host, has as many monitors as it may have; delete one first.",
    "too_many_registrations": "More registrations came from this key or address than are taken in a minute; see Retry-After.",
    "target_refused": "The webhook's address breaks a rule; `detail` names it.",
    "no_mail_here": "This service sends no e-mail; give a webhook instead.",
    "too_many_beats": "The monitor beats more often than is taken; beat again after the time in Retry-After.",
    "too_many_confirmations": "The key asked enough e-mail addresses for their consent today; go on tomorrow.",
    "badge_not_found": "There is no such badge; register_monitor and fleet_status tell its address.",
    "link_not_found": "The link leads nowhere any more; see that it was copied whole.",
    "capsule_too_large": "A capsule is at most 32,768 bytes of compact JSON. The heartbeat was recorded; the last capsule is kept.",
    "capsule_not_storable": "The capsule cannot be stored; `detail` says why. The heartbeat was recorded; the last capsule is kept.",
}
