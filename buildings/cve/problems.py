"""The explanations of the CVE building's problem codes, served at /errors/<code>."""

from collections.abc import Mapping

PROBLEMS: Mapping[str, str] = {
    "invalid_date": "A date is not a calendar day written YYYY-MM-DD.",
    "invalid_cve_id": "A CVE identifier is not of the form CVE-<year>-<number>.",
    "no_data_for_date": "The archive has no list for that day; `detail` names the days that it has.",
    "no_list_yet": "No list has been made yet. Try again after the time in Retry-After.",
}
