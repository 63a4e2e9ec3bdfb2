"""The documentation at /docs: the Markdown files that the distribution carries come in, pages in campus's layout go out."""
