"""Pages for people: templates, a page as HTML, Markdown or JSON, static files, and CSRF tokens."""
