"""The commands: each module parses arguments, calls the code that does the work, and prints the result."""
