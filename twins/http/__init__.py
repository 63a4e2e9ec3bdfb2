"""HTTP: requests enter by the table of routes; responses, problems included, leave."""
