"""The KafkaSource of a pipeline file; no Spark is imported, so that commands start quickly."""

from __future__ import annotations

from dataclasses import replace

from streamlake.pipeline.definition.pipeline_file import KafkaSettings
from streamlake.source.kafka_source import KafkaSource

BOOTSTRAP_TIMEOUT = "kafka.bootstrap.timeout.ms"
BOOTSTRAP_TIMEOUT_MS = 10_000


def kafka_source(settings: KafkaSettings) -> KafkaSource:
    """The source that the settings describe. Raises InvalidOptionError where options contradict."""
    return KafkaSource(
        bootstrap_servers=settings.bootstrap_servers,
        topics=settings.topics or None,
        topic_pattern=settings.topic_pattern,
        schema=settings.schema,
        format=settings.format,
        include=settings.include,
        options=settings.options,
    )


def with_short_timeout(source: KafkaSource) -> KafkaSource:
    """The source for somebody at a terminal: an unreachable broker is an error after ten seconds."""
    if any(name.lower().replace("_", ".") == BOOTSTRAP_TIMEOUT for name in source.options):
        return source
    return replace(source, options={**source.options, BOOTSTRAP_TIMEOUT: BOOTSTRAP_TIMEOUT_MS})
