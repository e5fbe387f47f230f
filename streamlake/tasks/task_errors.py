"""The final errors of tasks, which a second attempt would meet again.

They travel to the driver as values, so that Spark does not retry in vain.
"""

from __future__ import annotations

from streamlake.errors import (
    DataInvalidError,
    DataLossError,
    DecodeError,
    FeatureUnsupportedError,
    InvalidOptionError,
    MisplacedKeyError,
    NewSourceError,
    SchemaMismatchError,
    TooManyRejectsError,
)

FINAL_ERRORS = (
    DataInvalidError,
    DataLossError,
    DecodeError,
    FeatureUnsupportedError,
    InvalidOptionError,
    MisplacedKeyError,
    NewSourceError,
    SchemaMismatchError,
    TooManyRejectsError,
)
