"""A real HDFS for tests on 127.0.0.1: Hadoop's own name node and data node in one JVM (MiniDFSCluster)."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from tests.helpers.jars import HADOOP_MINICLUSTER, jars, pyspark_jars
from tests.helpers.java_server import JavaServer
from tests.helpers.processes import free_ports

_PROGRAM = "org.apache.hadoop.test.MiniDFSClusterManager"
_OF_PYSPARK = ("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "javax.servlet-api")


class HdfsServer:
    """A running HDFS. `uri` is its root (`hdfs://127.0.0.1:port`), `settings` reach it over HTTP."""

    def __init__(self, home: Path) -> None:
        self.port, self.http_port = free_ports(2)
        self.uri = f"hdfs://127.0.0.1:{self.port}"
        self.http = f"http://127.0.0.1:{self.http_port}"
        self.settings = {"hdfs.http-address": self.http, "hdfs.user": "root"}
        self._home = home
        self._server = JavaServer("HDFS", home, home / "log")

    def __enter__(self) -> HdfsServer:
        """Raises PartUnavailableError when it cannot be fetched or started."""
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def _start(self) -> None:
        path = [*jars(HADOOP_MINICLUSTER), *(jar for name in _OF_PYSPARK for jar in pyspark_jars(name))]
        arguments = ["-cp", ":".join(map(str, path)), f"-Dtest.build.data={self._home}/data"]
        # The name node tells clients the data node's name, which must be one that they can reach.
        arguments += ["-Djava.net.preferIPv4Stack=true", _PROGRAM, "-datanodes", "1", "-format"]
        arguments += ["-nnport", str(self.port), "-httpport", str(self.http_port)]
        options = {
            "dfs.replication": "1",
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.namenode.fs-limits.min-block-size": "0",
        }
        for key, value in options.items():
            arguments += ["-D", f"{key}={value}"]
        self._server.start(arguments, self._is_ready)

    def _is_ready(self) -> bool:
        """Whether the data node has reported and the name node lets files be written."""
        query = "qry=Hadoop:service=NameNode,name=FSNamesystemState"
        try:
            with urllib.request.urlopen(f"{self.http}/jmx?{query}", timeout=5) as answer:
                [state] = json.load(answer)["beans"]
        except (OSError, ValueError):
            return False
        return state["NumLiveDataNodes"] == 1 and state["FSState"] == "Operational"
