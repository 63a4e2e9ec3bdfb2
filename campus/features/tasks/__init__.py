"""Background tasks: calls of tools that go on after their request, in campus's own database, whichever process runs them."""
