"""The layout of pages for people: templates, the forms of a page (HTML, Markdown, JSON), static files, and the tokens of HTML forms."""
