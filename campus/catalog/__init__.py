"""The catalogue of one campus: from the tables of campus.toml to servers, tools, prices and documents, before any database is opened."""
