"""A steady producer in a process of its own: `python latency_producer.py SERVERS TOPIC RATE SECONDS`.

Sends events of about 200 bytes as JSON, spread evenly over time and over two partitions; a record's Kafka timestamp is the
moment at which it is sent. Prints how many there were, and by how much the slowest slice came too late.
"""

from __future__ import annotations

import json
import sys
import time

from kafka import KafkaProducer

from tests.bench.data import events

SLICES_PER_SECOND = 100
_PREPARED = 20_000


def main() -> None:
    servers, topic, rate, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    rows = events(0, _PREPARED).to_pylist()
    values = [json.dumps({**row, "ts": row["ts"].isoformat()}).encode() for row in rows]
    producer = KafkaProducer(
        bootstrap_servers=servers, compression_type="lz4", linger_ms=5, batch_size=1 << 16, acks=1
    )
    per_slice = max(1, rate // SLICES_PER_SECOND)
    started = time.time()
    sent, latest = 0, 0.0
    while sent < rate * seconds:
        due = started + sent / rate
        wait = due - time.time()
        if wait > 0:
            time.sleep(wait)
        latest = max(latest, -wait)
        for number in range(sent, sent + per_slice):
            producer.send(topic, values[number % _PREPARED], partition=number % 2)
        sent += per_slice
    producer.flush()
    producer.close()
    took = time.time() - started
    print(json.dumps({"sent": sent, "seconds": round(took, 2), "latest_seconds": round(latest, 3)}))


if __name__ == "__main__":
    main()
