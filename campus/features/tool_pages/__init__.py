"""The tools' pages: the directory and the tools' schemas come in; the list at /docs/api and a page with a form for each go out."""
