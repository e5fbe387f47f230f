"""What the peers are made of: jars by Ivy, and the Java programs in `java/`, compiled once, in the cache of the other parts.

The compiler is Eclipse's, a jar as well, so that a Java runtime is enough.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from tests.helpers.flink import FLINK
from tests.helpers.jars import KAFKA_BROKER, Artifact, Part, cache_root, jars, pyspark_jars
from tests.helpers.jvm import java_program
from tests.helpers.rings import PartUnavailableError

PROGRAMS = Path(__file__).with_name("java")
FLINK_KAFKA = Part(
    "flink-connector-kafka-5.0.0",
    (
        Artifact("org.apache.flink", "flink-connector-kafka", "5.0.0-2.1", transitive=False),
        Artifact("org.apache.flink", "flink-connector-base", "2.1.1", transitive=False),
    ),
    2,
)
SPARK_KAFKA = Part(
    "spark-sql-kafka-4.1.3",
    (
        Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.1.3", transitive=False),
        Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", transitive=False),
        Artifact("org.apache.kafka", "kafka-clients", "3.9.0", transitive=False),
        Artifact("org.apache.commons", "commons-pool2", "2.12.1", transitive=False),
    ),
    4,
)
COMPILER = Part("ecj-3.40.0", (Artifact("org.eclipse.jdt", "ecj", "3.40.0", transitive=False),), 1)


def class_path() -> list[Path]:
    """The class path of the Java programs, compiled and fetched on first use. Raises PartUnavailableError."""
    hadoop = [*pyspark_jars("hadoop-client-api"), *pyspark_jars("hadoop-client-runtime")]
    clients = [jar for jar in jars(KAFKA_BROKER) if jar.name.startswith(("kafka-clients-", "zstd-jni-"))]
    found = [*jars(FLINK), *jars(FLINK_KAFKA), *clients, *pyspark_jars("jackson-core"), *hadoop]
    return [_compiled(found), *found]


def _compiled(on: list[Path]) -> Path:
    sources = sorted(PROGRAMS.rglob("*.java"))
    digest = hashlib.sha256()
    for text in [*(source.read_bytes() for source in sources), *(jar.name.encode() for jar in on)]:
        digest.update(text)
    home = cache_root() / f"peers-{digest.hexdigest()[:16]}"
    if home.exists():
        return home
    with tempfile.TemporaryDirectory(dir=cache_root(), prefix=".peers-") as work:
        classes = Path(work, "classes")
        command = [java_program(), "-jar", str(jars(COMPILER)[0]), "--release", "17", "-nowarn", "-g"]
        command += ["-cp", os.pathsep.join(map(str, on)), "-d", str(classes), *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise PartUnavailableError(f"the peers' programs did not compile:\n{done.stdout}{done.stderr}")
        classes.rename(home)
    return home
