"""PostgreSQL: an address `postgresql://…` comes in; a schema per building goes out, whose writers of all processes take turns."""
