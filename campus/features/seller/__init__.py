"""The seller: [seller] of campus.toml comes in; who sells, the terms, privacy and refunds go out as pages, and into all documents."""
