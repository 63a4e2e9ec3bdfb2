"""Discovery: campus.toml and the open buildings come in; documents for registries, crawlers and agents go out."""
