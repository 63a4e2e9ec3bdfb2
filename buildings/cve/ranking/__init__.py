"""The ranking: KEV, EPSS and NVD enter; the day's edition, its brief, verdicts and changes leave."""
