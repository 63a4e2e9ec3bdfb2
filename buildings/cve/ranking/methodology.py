"""The published methodologies of brief, deadlines and forecast, with evidence and limits; and the notices that publishers require."""

from buildings.cve.forecast.models import ForecastMethodology
from buildings.cve.models import Backtest, Methodology

SOURCE = "CISA KEV, EPSS and NVD: ranked by known exploitation, its probability in the next 30 days, and days since the KEV listing."

NOTICES = (
    "This product uses data from the NVD API but is not endorsed or certified by the NVD.",
    "EPSS scores: the Exploit Prediction Scoring System by FIRST, https://www.first.org/epss.",
    "KEV: the Known Exploited Vulnerabilities Catalog by CISA, https://www.cisa.gov/known-exploited-vulnerabilities-catalog, CC0 1.0.",
)

METHODOLOGY = Methodology(
    formula="score = 25·KEV + 25·EPSS + 50·KEV·2^(−d/30)",
    terms=(
        "KEV is 1 for a CVE that CISA lists as known to be exploited, else 0: 25 points.",
        "EPSS is the probability, 0 to 1, that it is exploited in the next 30 days: up to 25 points. A CVE without a score gets none.",
        "d is the number of days from the listing in KEV to the day of the list, never below 0: 50 points, halved every 30 days.",
        "So a listing weighs as much as an EPSS of 1. A score of 25 or less means not in KEV; one above 50 means listed lately.",
    ),
    order=(
        "By the unrounded score; where scores are equal:",
        "the higher EPSS first, none last;",
        "then the later listing in KEV first, none last;",
        "then the newer identifier first: by year, then by number.",
    ),
    ranked="Every CVE that KEV or EPSS knows and NVD does not reject, about 360,000 to 410,000; the brief shows the first 25.",
    sources=(
        "NVD: every record, KEV's first, then what changes, hour by hour. `nvd_record` says of each CVE whether its record was read, was"
        " not read yet, or is absent. In NVD's yearly files 55,447 of 55,731 ranked CVEs had a rating.",
        "Severity: NVD's own rating, else that of the authority that assigned the CVE, else CISA's; of each the newest CVSS version.",
        "Patch status: KEV where it says that the product is at its end of life, else links that NVD tagged as Patch or Vendor Advisory.",
        "Vendor and product: KEV, else NVD's product names.",
    ),
    evidence=(
        "111 lists, one a week from 2024-04 to 2026-07, were made again from only what was known on their day.",
        "The question: of the CVEs in KEV, which does CISA tie to ransomware within the next 30 days? The figures are in `backtest`.",
        "The day of the listing does most of the work: ranking by it alone does as well. EPSS orders what was listed at the same time.",
        "By era the AUC of this ranking is 0.673 (2024-04 to 2025-05, 55 CVEs), 0.812 (to 2026-07, 39 CVEs) and 0.625, 95 % interval 0.51"
        " to 0.75, on the newest (2026-07-18 to 08-15, 23 CVEs); of the day of listing alone 0.711, 0.785 and 0.534.",
        "On average 18.2 of the 25 are among the 25 newest listings; EPSS decides about 7 of them.",
        "EPSS follows a listing slowly (median 0.009 before it, then 0.024, 0.11, 0.29, 0.37, 0.58 week by week): hence the 30 days.",
        "About one of the first 25 is new per day; on 45 % of days none is.",
    ),
    backtest=(
        Backtest(ranking="this formula", auc=0.740, ransomware_in_top_25=0.24, new_listings_in_top_25=5.1),
        Backtest(ranking="day of listing in KEV only", auc=0.739, ransomware_in_top_25=0.25, new_listings_in_top_25=None),
        Backtest(ranking="weights 50, 30 and 20 instead", auc=0.683, ransomware_in_top_25=0.14, new_listings_in_top_25=1.9),
        Backtest(ranking="EPSS only", auc=0.584, ransomware_in_top_25=0.06, new_listings_in_top_25=0.0),
        Backtest(ranking="CVSS, or the order that grype uses", auc=0.565, ransomware_in_top_25=0.06, new_listings_in_top_25=0.0),
    ),
    limits=(
        "The weights were chosen on the data that they were tested on: expect somewhat less of them on new data.",
        "CISA ties CVEs to ransomware in batches, so every interval is narrower than it should be.",
        "True exploitation cannot be known. What CISA lists and what it ties to ransomware stand in for it.",
        "The 25 of the brief are always in KEV: the lowest score within KEV (25) is above the highest outside it (24.99975)."
        " A CVE that is exploited but not yet listed has a verdict, and no place in the brief.",
        "The day of listing is not the day of the first exploitation; KEV grows mostly on weekdays and in US office hours.",
        "EPSS has no score for a CVE's first two days, and its values shift when its model changes: compare within one model version.",
        "No public feed says that something is patched: patch_status says what was published, not what is installed.",
        "The ranking knows nothing of your systems: whether you run the product, and who can reach it, counts for more.",
    ),
)

DEADLINES = (
    "Today: the directive gives 3 days, or CISA reports use in ransomware campaigns, or CISA's due date in KEV is tomorrow or earlier, if"
    " it was set under this directive (since 2026-06-10).",
    "This week: the directive gives 14 days; or outside KEV EPSS is 10 % or more, or CISA's SSVC says that it is exploited.",
    "Later: all others, with 60 days or until the system's next upgrade.",
    "If it is not known whether the internet reaches a system, both answers are given: in KEV the stricter one decides, outside KEV the"
    " laxer one, with a word on the other where it differs.",
    "Where CISA has not published whether a CVE is automatable or its technical impact, or only in a word unknown here, the answer is the"
    " range of the rows that remain: in KEV the strictest of them decides, outside KEV the laxest. Nothing is taken for no or partial.",
    "The days are calendar days. They begin when CISA lists the CVE in KEV, or when you find it on the system, whichever is first. So only"
    " CVEs in KEV have dates; of others you know the day.",
    "Forensic triage is due if KEV says so of the CVE; if KEV does not say, by the row. Where both differ, both are said.",
)
"""How what to fix today, this week and later follows from the directive's table; see ranking/deadlines.py."""
DEADLINE_COUNTS = (
    ("In KEV", 263, "exposed", 241, 22, 0),
    ("In KEV", 263, "not exposed", 122, 141, 0),
    ("Not in KEV", 43_692, "exposed", 3_024, 15_606, 25_062),
    ("Not in KEV", 43_692, "not exposed", 0, 1_026, 42_666),
)
"""CVEs by what to fix when, on 2026-08-21: those that KEV (2026-08-21) or EPSS (2026-08-15) knows and whose decision points CISA had
published by 2024-10-24. With exposure unknown the first and the last line hold."""

FORECAST_METHODOLOGY = ForecastMethodology(
    question="Which CVEs that are not in KEV are likeliest to be added to it within 30 days?",
    formula="score = 0.5·logit(EPSS) − ln(age + 0.02) + 1.5·neighbor + min(4, rise)",
    terms=(
        "Ranked is every CVE that EPSS has scored, KEV does not list on the day of the list, and NVD does not reject.",
        "logit(p) is ln(p / (1 − p)); p is EPSS, held between 0.00001 and 0.99999.",
        "age is in years of 365.25 days. The numbers of a year that EPSS has scored are spread evenly over the year, up to the day of the"
        " list: the k-th of n numbers of a year of L days (of the current year: L days up to and including the day of the list) is"
        " (days from 1 January up to and including the day of the list) − L·k/n days old, never below 0.",
        "neighbor is 1 if KEV lists the number just before or after it in the same year, else 0: numbers are assigned in batches.",
        "rise is logit(EPSS) less its value a week before, and may be negative. The week is 7 days, or up to 10 where days are missing."
        " It is 0 for a CVE without a score then, and for all CVEs where the earlier scores are of another model version.",
    ),
    order="By the unrounded score; where scores are equal, the higher EPSS first, then the newer identifier.",
    grading=(
        "A name of the list of day D is a hit if CISA's dateAdded is one of the 30 days after D. Listings on D itself do not count.",
        "Every list is graded again after each refresh; it is final, and counts in precision and recall, when KEV is newer than D + 30.",
        "Only lists that were made before their 30 days began count. Lists of past days that were made later are shown apart, as"
        " `backfilled`.",
        "A listing counts even if CISA removes it later.",
        "precision: hits among the first names. recall: hits among all listings of the window, also of CVEs that EPSS had not scored.",
        "A CVE that stays on the list for ten days is ten names, and ten hits if it is listed. So different CVEs are counted too, and the"
        " 95 % intervals (Wilson's) are as wide as if each CVE had been counted once.",
        "auc: of all pairs of a CVE that was listed and one that was not, the share in the right order; equal scores count half."
        " Listed CVEs that EPSS had not scored are in no pair. EPSS alone is graded on the same pairs. The interval is by CVE.",
        "`lists` has the hits of each list with its misses; while the 30 days are not over, with the names that were not listed yet.",
        "The brief is graded against ransomware: of the CVEs in KEV that CISA did not tie to ransomware on D, which does it tie within 30"
        " days? The day is that of the first list that shows it. auc compares all of them, precision and recall those in the first 25.",
        "EPSS alone, among the same CVEs as the forecast, is graded as a baseline.",
    ),
    candidates=(
        "brief_with_vendor: the brief's score plus 25·(known + 0.4)/(listed + 2), where CISA lists `listed` CVEs of the vendor and ties"
        " `known` of them to ransomware.",
        "next_in_kev_with_vendor: the forecast's score plus ln(1 + KEV entries of the vendor that NVD names), 0 if it names none.",
        "Both were registered before the first of their lists was made. Their lists are graded and not published.",
    ),
    evidence=(
        "46 lists, one a week from 2024-04 to 2026-08, were made from what was known on their day, and graded on 563 listings of 281 CVEs.",
        "AUC .904 [.883, .924], where EPSS alone has .630 [.586, .675]; intervals are 95 %.",
        "Of the listings that could be ranked, the first 1,000 names had 19 % (EPSS 9 %), the first 100 8 % (EPSS 3 %).",
        "Of the first 25, 100 and 1,000 names, 1.7, 1.0 and .24 % were listed within 30 days (EPSS .8, .33 and .11 %).",
        "Another 440 listings had no EPSS score on the day and could not be ranked.",
    ),
    limits=(
        "About 99 of the first 100 names are not listed within 30 days: it is a list to watch, not a list to patch first.",
        "A KEV listing is not exploitation. KEV holds about a tenth of what some vendors call exploited, and lists some CVEs years later.",
        "CVEs that EPSS has not scored, such as those of the last 48 hours, cannot be on the list, and are often what CISA adds first.",
        "The weights were chosen on the data that they were tested on: expect somewhat less of them on new data, and read the record.",
        "The score is not a probability, and scores of different days are not comparable.",
    ),
)
