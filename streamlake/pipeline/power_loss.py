"""Before a query starts: a checkpoint directory on a local disk is rid of what Spark cannot read after a loss of power."""

from __future__ import annotations

import logging
from typing import Any

from streamlake.checkpoint.spark_logs import local_home, remove_torn

_LOG = logging.getLogger(__name__)


def remove_what_power_took(session: Any, checkpoint_location: str) -> None:
    """Entries of Spark's logs that Spark cannot read after a loss of power are removed, with a warning."""
    path = session._jvm.org.apache.hadoop.fs.Path(checkpoint_location)
    conf = session._jsparkSession.sessionState().newHadoopConf()
    home = local_home(str(path.getFileSystem(conf).makeQualified(path).toString()))
    torn = [] if home is None else remove_torn(home)
    if torn:
        _LOG.warning(
            "%s: removed %s, empty, cut short or without its plan, as a loss of power leaves it; these checkpoints are run again, "
            "and what the table has of them is skipped",
            checkpoint_location,
            ", ".join(torn),
        )
