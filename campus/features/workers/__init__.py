"""`campus serve --workers`: several processes on one machine serve at the same addresses, and are replaced without refusing a call."""
