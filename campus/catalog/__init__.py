"""The catalog: reads campus.toml and works out servers, tools, prices and documents, before any database is opened."""
