"""The command line: `streamlake demo`, `run`, `inspect`. The top layer; nothing imports it."""
