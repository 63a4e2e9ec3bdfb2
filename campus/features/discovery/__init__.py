"""Documents for registries, crawlers and agents that look for this service: all made from campus.toml and the open buildings."""
