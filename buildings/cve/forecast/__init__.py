"""The forecast: an edition and the course of EPSS enter; the CVEs likeliest to be listed next, and the grades of past lists, leave."""
