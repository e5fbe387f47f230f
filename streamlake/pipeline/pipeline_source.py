"""The KafkaSource of a pipeline file. No Spark in here: commands that only look at a pipeline start quickly."""

from __future__ import annotations

from streamlake.pipeline.pipeline_file import KafkaSettings
from streamlake.source.kafka_source import KafkaSource


def kafka_source(settings: KafkaSettings) -> KafkaSource:
    """Raises InvalidOptionError for options that contradict each other."""
    return KafkaSource(
        bootstrap_servers=settings.bootstrap_servers,
        topics=settings.topics or None,
        topic_pattern=settings.topic_pattern,
        schema=settings.schema,
        format=settings.format,
        include=settings.include,
        options=settings.options,
    )
