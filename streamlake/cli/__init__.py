"""The command line: `streamlake demo`, `run`, `inspect` and so on. The top layer; nothing imports it."""
