"""The cve building."""
