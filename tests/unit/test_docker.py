"""The compose file, without Docker: services, ports, names and files agree with each other and with the pipeline files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamlake.pipeline.definition.pipeline_file import KafkaSettings, Pipeline, load_pipeline
from streamlake.pipeline.definition.pipeline_tables import pipeline_tables
from tests.helpers.spark import ROOT

DOCKER = ROOT / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
CONNECTOR: dict[str, str] = json.loads((DOCKER / "connector.json").read_text())
PROFILES = {
    "demo": ("demo",),
    "kafka": ("kafka", "topic", "pipeline"),
    "cdc": ("kafka", "postgres", "connect", "connector", "cdc"),
}
RUNS = {"pipeline": "orders.yaml", "cdc": "cdc.yaml"}
"""Service -> the pipeline file that it runs."""


def pipeline(service: str) -> Pipeline:
    return load_pipeline(DOCKER / RUNS[service], SERVICES[service]["environment"])


def listeners() -> dict[str, str]:
    """The broker's advertised addresses by listener."""
    text = SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    return dict(part.split("://") for part in text.split(","))


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_is_complete(profile: str) -> None:
    """What a service waits for starts with it, and can be waited for."""
    assert {name for name, service in SERVICES.items() if profile in service["profiles"]} == set(
        PROFILES[profile]
    )
    for name in PROFILES[profile]:
        for needed, how in SERVICES[name].get("depends_on", {}).items():
            assert needed in PROFILES[profile], f"{name} waits for {needed}"
            if how["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[needed]


@pytest.mark.parametrize("name", SERVICES)
def test_files_volumes_and_images(name: str) -> None:
    service = SERVICES[name]
    for volume in service.get("volumes", ()):
        source = volume.split(":")[0]
        assert (DOCKER / source).is_file() if source.startswith("./") else source in COMPOSE["volumes"], (
            volume
        )
    if service["image"] == "streamlake":
        assert (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    else:
        assert re.search(r":\d[\w.]*$", service["image"]), (
            "an image without a version is another one tomorrow"
        )
    for port in service.get("ports", ()):
        assert port.startswith("127.0.0.1:"), "nothing is offered to other machines"


def test_ports_of_the_host_are_used_once() -> None:
    taken = [port.rpartition(":")[0] for service in SERVICES.values() for port in service.get("ports", ())]
    assert len(taken) == len(set(taken))


@pytest.mark.parametrize("service", RUNS)
def test_a_pipeline_runs_the_file_that_is_mounted(service: str) -> None:
    mounted = {volume.split(":")[1]: volume.split(":")[0] for volume in SERVICES[service]["volumes"]}
    command, path = SERVICES[service]["command"]
    assert (command, mounted[path]) == ("run", f"./{RUNS[service]}")
    told = pipeline(service)
    assert isinstance(told.source, KafkaSettings)
    assert told.source.bootstrap_servers == (listeners()["PLAINTEXT"],)
    lake = mounted_lake(service)
    assert told.sink.table.startswith(lake)
    assert told.checkpoint.startswith(lake)
    assert not told.checkpoint.startswith(told.sink.table.partition("{")[0])


def mounted_lake(service: str) -> str:
    [path] = [volume.split(":")[1] for volume in SERVICES[service]["volumes"] if volume.startswith("lake:")]
    return f"{path}/"


def test_the_topic_is_the_pipelines() -> None:
    told = pipeline("pipeline")
    assert isinstance(told.source, KafkaSettings)
    assert f"--topic={told.source.topics[0]}" in SERVICES["topic"]["command"]
    assert f"--bootstrap-server={listeners()['PLAINTEXT']}" in SERVICES["topic"]["command"]


def test_the_connector_reaches_the_database() -> None:
    database = SERVICES["postgres"]["environment"]
    assert CONNECTOR["database.hostname"] == "postgres"
    assert CONNECTOR["database.port"] == SERVICES["postgres"]["ports"][0].rpartition(":")[2]
    assert CONNECTOR["database.user"] == database["POSTGRES_USER"]
    assert CONNECTOR["database.dbname"] == database["POSTGRES_DB"]
    assert "wal_level=logical" in SERVICES["postgres"]["command"]
    variable = re.fullmatch(r"\$\{env:(\w+)\}", CONNECTOR["database.password"])
    assert variable is not None
    assert SERVICES["connect"]["environment"][variable[1]] == database["POSTGRES_PASSWORD"]
    assert SERVICES["connect"]["environment"]["CONNECT_CONFIG_PROVIDERS"] == "env"


def test_the_connector_is_made_where_connect_listens() -> None:
    command = SERVICES["connector"]["command"]
    port = SERVICES["connect"]["ports"][0].rpartition(":")[2]
    assert command[-1] == f"http://connect:{port}/connectors/{CONNECTOR['topic.prefix']}/config"
    [mounted] = [volume.split(":")[1] for volume in SERVICES["connector"]["volumes"]]
    assert f"@{mounted}" in command
    assert SERVICES["connect"]["environment"]["BOOTSTRAP_SERVERS"] == listeners()["PLAINTEXT"]


def test_every_table_of_the_database_becomes_one() -> None:
    names = re.findall(r"create table (\w+)", (DOCKER / "shop.sql").read_text())
    told = pipeline("cdc")
    topics = [f"{CONNECTOR['topic.prefix']}.{CONNECTOR['schema.include.list']}.{name}" for name in names]
    assert isinstance(told.source, KafkaSettings)
    assert told.source.topic_pattern is not None
    assert all(re.fullmatch(told.source.topic_pattern, topic) for topic in topics)
    tables = pipeline_tables(told, topics)
    assert [Path(each.table).name for each in tables] == sorted(names)
    assert {each.arguments["mode"] for each in tables} == {"upsert"}


def test_the_docs_name_the_profiles() -> None:
    text = (ROOT / "docs" / "guides" / "deploying.md").read_text()
    for profile in ("kafka", "cdc"):
        assert f"docker/compose.yaml --profile {profile} up --build" in text
