"""Features: each a folder with its settings, tables, steps, commands and pages. The core imports none of them."""
