"""Other names of CVEs: GHSA, PYSEC, RUSTSEC, GO and what else OSV's records say, read in bulk and never looked up one by one."""
