"""KafkaSource and its options: what is accepted, what is refused and with which hint."""

from __future__ import annotations

import json
import pickle

import pyarrow as pa
import pytest

from streamlake.errors import InvalidOptionError
from streamlake.source.consumers import consumer_arguments
from streamlake.source.flat_options import source_from_options, source_to_options
from streamlake.source.kafka_source import KafkaSource


def source(**arguments):
    return KafkaSource(**{"bootstrap_servers": "a:1, b:2", "topics": "orders", **arguments})


def test_lists_and_texts_mean_the_same():
    assert source(topics="x, y").topics == source(topics=["x", "y", "x"]).topics == ("x", "y")
    assert source().servers == KafkaSource(["a:1", "b:2"], topics="orders").servers == ["a:1", "b:2"]


def test_a_source_pickles_and_is_equal():
    given = source(
        schema="id long not null, m map<string, int>", options={"min-partitions": 4}, include=["offset"]
    )
    copy = pickle.loads(pickle.dumps(given))
    assert copy == given
    assert copy.settings.min_partitions == 4


def test_schema_forms():
    ddl = source(schema="id long not null, name string").schema
    arrow = source(
        schema=pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    ).schema
    assert ddl == arrow


def test_included_columns_come_last_with_the_record_types():
    schema = source(
        schema="id long", include="key,timestamp,headers", options={"include-prefix": "k_"}
    ).table_schema
    assert schema.column_names == ["id", "k_key", "k_timestamp", "k_headers"]
    assert str(schema.find("k_timestamp").type) == "timestamptz"
    ids = list(schema.fields_by_id)
    assert sorted(ids) == list(range(1, len(ids) + 1))


def test_raw_format_is_the_value_as_it_is():
    assert source(format="raw", include="offset").table_schema.column_names == ["value", "offset"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"topics": None}, "exactly one of topics and topic_pattern"),
        ({"topic_pattern": "x"}, "exactly one of topics and topic_pattern"),
        ({"topics": []}, "topics is empty"),
        ({"topics": None, "topic_pattern": "("}, "not a regular expression"),
        ({"bootstrap_servers": " "}, "bootstrap_servers is empty"),
        ({"format": "xml"}, "it can be json, raw"),
        ({"include": ["offsett"]}, "did you mean 'offset'"),
        ({"schema": "id long, offset long", "include": ["offset"]}, "include-prefix"),
        ({"schema": "id longg"}, "longg"),
        ({"schema": 5}, "DDL text"),
        ({"format": "raw", "schema": "id long"}, "no schema"),
        ({"options": {"starting-offset": "earliest"}}, "did you mean 'starting-offsets'"),
        ({"options": {"starting-offsets": "first"}}, "earliest, latest, timestamp"),
        ({"options": {"starting-offsets": "{"}}, "not JSON"),
        ({"options": {"starting-offsets": {"t": {"0": -3}}}}, "below -2"),
        ({"options": {"starting-offsets": {"t": {"0": "5"}}}}, "not an integer"),
        ({"options": {"starting-offsets": "timestamp"}}, "give both"),
        ({"options": {"starting-offsets": "latest", "starting-timestamp": "5"}}, "give both"),
        ({"options": {"starting-timestamp": "yesterday"}}, "ISO time"),
        ({"options": {"max-offsets-per-trigger": 0}}, "at least 1"),
        ({"options": {"min-partitions": "many"}}, "whole number"),
        ({"options": {"fail-on-data-loss": "maybe"}}, "true or false"),
        ({"options": {"isolation-level": "serializable"}}, "read_committed"),
        ({"options": {"kafka.group.id": "g"}}, "checkpoint"),
        ({"options": {"kafka.security.protocl": "SSL"}}, "did you mean 'kafka.security.protocol'"),
        ({"options": {"kafka.fetch.max.bytes": "lots"}}, "whole number"),
        ({"options": {"kafka.check.crcs": "perhaps"}}, "true or false"),
        ({"options": {"kafka.auto.offset.reset": "latest"}}, "starting-offsets"),
        ({"options": {"kafka.sasl.jaas.config": "nonsense"}}, "kafka.sasl.plain.username"),
        (
            {"options": {"kafka.sasl.mechanism": "OAUTHBEARER"}},
            "needs kafka.sasl.oauthbearer.token.endpoint.url",
        ),
        ({"options": {"kafka.sasl.oauthbearer.scope": "s"}}, "belong to kafka.sasl.mechanism=OAUTHBEARER"),
        ({"options": {"kafka.sasl.oauthbearer.scop": "s"}}, "did you mean 'kafka.sasl.oauthbearer.scope'"),
    ],
)
def test_mistakes_are_errors_with_a_way_out(arguments, problem):
    with pytest.raises(InvalidOptionError, match=problem):
        source(**arguments)


def test_starting_timestamp_forms():
    for text in ("1714521600000", "2024-05-01T00:00:00Z", "2024-05-01T02:00:00+02:00", "2024-05-01"):
        settings = source(options={"starting-timestamp": text}).settings
        assert (settings.starting_offsets, settings.starting_timestamp_ms) == ("timestamp", 1_714_521_600_000)


def test_client_options_reach_the_consumer_under_their_names():
    arguments = consumer_arguments(
        source(
            options={
                "kafka.security.protocol": "SASL_SSL",
                "kafka.sasl.mechanism": "SCRAM-SHA-512",
                "kafka.sasl.jaas.config": 'x.ScramLoginModule required username="me" password="p\\"w";',
                "kafka.ssl.ca.location": "/ca.pem",
                "kafka.ssl.check.hostname": False,
                "kafka.fetch.max.bytes": 1000,
                "isolation-level": "read-uncommitted",
            }
        )
    )
    expected = {
        "bootstrap_servers": ["a:1", "b:2"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "me",
        "sasl_plain_password": 'p"w',
        "ssl_cafile": "/ca.pem",
        "ssl_check_hostname": False,
        "fetch_max_bytes": 1000,
        "isolation_level": "read_uncommitted",
        "auto_offset_reset": "none",
        "enable_auto_commit": False,
        "group_id": None,
        "allow_auto_create_topics": False,
    }
    assert {key: arguments[key] for key in expected} == expected


def test_secrets_are_not_shown():
    shown = repr(source(options={"kafka.sasl.plain.password": "hunter2", "kafka.ssl.password": "hunter2"}))
    assert "hunter2" not in shown


def test_flat_options_make_the_same_source():
    for given in (
        source(schema="id long, s struct<a: int, b: array<string>>", include=["key", "offset"]),
        source(topics=None, topic_pattern="o.*", format="raw", options={"kafka.ssl.cafile": "/x"}),
        source(options={"starting-offsets": {"orders": {"0": 5}}, "json.unknown-fields": "fail"}),
    ):
        flat = source_to_options(given)
        assert all(isinstance(value, str) and key == key.lower() for key, value in flat.items())
        assert source_from_options(json.loads(json.dumps(flat))) == given


def test_names_of_sparks_own_source_are_translated():
    with pytest.raises(InvalidOptionError, match="'topics'"):
        source_from_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t"})


def test_flat_options_need_servers():
    with pytest.raises(InvalidOptionError, match="bootstrap-servers"):
        source_from_options({"topics": "t"})
