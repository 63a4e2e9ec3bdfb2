"""NVD's records: pages of its API enter; packed records, found by the number of a CVE, leave."""
