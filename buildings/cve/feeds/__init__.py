"""The three public feeds, KEV, EPSS and NVD: downloaded with limits, parsed whole or refused."""
