"""The operator's commands on a pipeline, from outside: the command line calls them, no data path does."""
