"""What each problem code of this building means; served at /errors/<code>."""

from collections.abc import Mapping

PROBLEMS: Mapping[str, str] = {
    "invalid_date": "A date is not a calendar day written YYYY-MM-DD.",
    "invalid_cve_id": "A CVE identifier is not of the form CVE-<year>-<number>.",
    "no_data_for_date": "There is no list for that day.",
    "no_list_yet": "No list was made yet; try again after the time in Retry-After.",
}
