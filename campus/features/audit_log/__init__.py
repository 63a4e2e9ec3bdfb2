"""The audit log: every call comes in as a step's `ended`; rows of `audit_log` go out, by `campus audit-log` and to the operator's pages.

`log` is the front door: the operator's pages note their acts in it, and show the last ones.
"""
