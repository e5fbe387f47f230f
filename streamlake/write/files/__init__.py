"""Writers of data files: rolling, fanout, clustered, and what a task reports of them."""
