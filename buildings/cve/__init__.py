"""The CVE building: a daily list (edition) of CVEs ranked by real-world exploitation; its first 25 are the brief, 3 the teaser."""
