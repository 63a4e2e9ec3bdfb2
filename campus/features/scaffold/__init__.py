"""What an author or operator begins with: `campus init` writes a campus.toml, `campus new building` the files of a building.

`init` is a front door: what else writes a campus.toml begins with its template, and writes texts as it does.
"""
