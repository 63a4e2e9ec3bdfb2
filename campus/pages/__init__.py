"""Campus's own pages for people: every tool with a form that calls it, keys, and the operator's pages."""
