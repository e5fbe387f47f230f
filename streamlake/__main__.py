"""`python -m streamlake`: the command line without its console script."""

from __future__ import annotations

from streamlake.cli.main import main

if __name__ == "__main__":
    main()
