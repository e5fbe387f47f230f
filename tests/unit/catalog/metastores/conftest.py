from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.moto_services import AwsServices, aws_services


@pytest.fixture(scope="session")
def running_aws() -> Iterator[AwsServices]:
    with aws_services() as services:
        yield services


@pytest.fixture
def aws(running_aws: AwsServices, monkeypatch: pytest.MonkeyPatch) -> AwsServices:
    """Glue, DynamoDB and S3, empty."""
    for name, value in {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    running_aws.reset()
    return running_aws
