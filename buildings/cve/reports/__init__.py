"""Reports: lists of CVEs and the reports of scanners enter; verdicts in the order in which to fix them leave."""
