"""Documents: operations enter; OpenAPI 3.0.3 leaves."""
