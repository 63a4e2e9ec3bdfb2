"""The three public feeds: fetched with care, parsed whole or refused."""
