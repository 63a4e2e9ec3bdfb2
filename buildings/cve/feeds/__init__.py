"""The three public feeds, KEV, EPSS and NVD: downloaded with limits, and parsed completely or refused."""
