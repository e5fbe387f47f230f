"""What the arguments of a sink say, compared with streams and tables that exist."""
