"""The errors that a second attempt of a task would meet again: they travel to the driver as values, and Spark does not
retry in vain."""

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
