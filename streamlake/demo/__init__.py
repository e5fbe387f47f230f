"""The demo: writes orders into a table, and checks the result."""
