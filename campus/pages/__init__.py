"""Campus's own pages for visitors: every tool with a form that calls it, and the page of a key."""
