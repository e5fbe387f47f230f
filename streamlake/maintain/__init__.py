"""A table between its writers' commits: whether all that must hold does, and what lies there that nobody needs."""
