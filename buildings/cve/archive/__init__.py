"""The archive: each day's edition enters; past lists, and the course of a CVE's EPSS and KEV entries, leave."""
