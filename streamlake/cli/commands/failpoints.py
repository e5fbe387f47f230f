"""`streamlake failpoints`: lists the places where a process can be made to fail, and how they are armed."""

from __future__ import annotations

from streamlake.cli.views.rendering import grid, json_text, terminal
from streamlake.failpoints import BOTH, KNOWN, VARIABLE

_HOW = f"""\
Armed by {VARIABLE} in the environment of a driver, for example
  {VARIABLE}='before-swap=kill'                  SIGKILL to the process that gets there
  {VARIABLE}='data-file-closed=raise,nth=3'      an error, on the third call in a process
  {VARIABLE}='after-swap=delay:2.5'              go on after 2.5 seconds
  {VARIABLE}='before-tasks=exit,once=/tmp/mark'  end the process, unless the file is there; it is created
Several are separated by ';'. Other errors: raise:CommitConflictError, raise:StorageError, ..."""


def run(*, as_json: bool) -> int:
    """Print every failpoint, in the order of a checkpoint, maintenance last; returns the exit code."""
    if as_json:
        print(json_text({name: {"where": where, "what": what} for name, (where, what) in KNOWN.items()}))
        return 0
    console = terminal()
    rows = [
        (name, "driver, executor" if where == BOTH else where, what) for name, (where, what) in KNOWN.items()
    ]
    console.print(grid("Failpoints", [("name", "left"), ("on", "left"), ("what is so then", "left")], rows))
    console.print(_HOW, markup=False)
    return 0
