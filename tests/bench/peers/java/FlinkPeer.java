import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.iceberg.DistributionMode;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.flink.FlinkSchemaUtil;
import org.apache.iceberg.flink.TableLoader;
import org.apache.iceberg.flink.sink.FlinkSink;
import org.apache.iceberg.hadoop.HadoopTables;
import org.apache.iceberg.types.Types;

/**
 * Flink's Iceberg sink behind its Kafka source: {@code FlinkPeer SERVERS TOPIC append|upsert LOCATION CHECKPOINT_MS}.
 *
 * <p>Reads the topic up to its present end into a new table of format version 2, in this JVM, with two slots. Upserts go
 * to the writer of their key and leave equality deletes. Prints one JSON object.
 */
public final class FlinkPeer {
    private static final int SLOTS = 2;

    private FlinkPeer() {}

    public static void main(String[] arguments) throws Exception {
        boolean upserts = arguments[2].equals("upsert");
        Schema schema = new Schema(
                List.of(
                        Types.NestedField.required(1, "id", Types.LongType.get()),
                        Types.NestedField.optional(2, "name", Types.StringType.get()),
                        Types.NestedField.optional(3, "category", Types.StringType.get()),
                        Types.NestedField.optional(4, "amount", Types.DoubleType.get()),
                        Types.NestedField.optional(5, "ts", Types.TimestampType.withoutZone()),
                        Types.NestedField.optional(6, "payload", Types.StringType.get()),
                        Types.NestedField.optional(7, "seq", Types.LongType.get())),
                // The sink takes identifier fields for a wish to upsert.
                upserts ? Set.of(1) : Set.of());
        Table table = new HadoopTables()
                .create(schema, PartitionSpec.unpartitioned(), Map.of("format-version", "2"), arguments[3]);

        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.createLocalEnvironment(SLOTS, settings(arguments[4]));
        TypeInformation<RowData> type = InternalTypeInfo.of(FlinkSchemaUtil.convert(schema));
        KafkaSource<RowData> source = KafkaSource.<RowData>builder()
                .setBootstrapServers(arguments[0])
                .setTopics(arguments[1])
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setBounded(OffsetsInitializer.latest())
                .setProperty("max.partition.fetch.bytes", "8388608")
                .setProperty("max.poll.records", "10000")
                .setDeserializer(KafkaRecordDeserializationSchema.valueOnly(new EventDecoder(type)))
                .build();
        DataStream<RowData> rows =
                environment.fromSource(source, WatermarkStrategy.noWatermarks(), "topic", type);
        FlinkSink.Builder sink = FlinkSink.forRowData(rows).tableLoader(TableLoader.fromHadoopTable(arguments[3]));
        if (upserts) {
            sink.equalityFieldColumns(List.of("id")).upsert(true).distributionMode(DistributionMode.HASH);
        } else {
            sink.distributionMode(DistributionMode.NONE);
        }
        sink.append();
        long started = System.nanoTime();
        environment.execute(arguments[2]);
        double seconds = (System.nanoTime() - started) / 1e9;

        table.refresh();
        int snapshots = 0;
        for (Snapshot each : table.snapshots()) {
            snapshots++;
        }
        System.out.printf(
                "{\"job_seconds\": %.3f, \"commits\": %d, \"summary\": {%s}}%n", seconds, snapshots, totals(table));
        // What is left of the local cluster needs no leave of absence: the tables are committed.
        System.exit(0);
    }

    private static Configuration settings(String checkpointMillis) {
        Configuration settings = new Configuration();
        for (String name : List.of(
                "jobmanager.bind-host", "jobmanager.rpc.address", "taskmanager.bind-host", "taskmanager.host",
                "rest.bind-address", "rest.address")) {
            settings.setString(name, "127.0.0.1");
        }
        settings.setString("execution.runtime-mode", "streaming");
        settings.setString("execution.checkpointing.interval", checkpointMillis + " ms");
        settings.setString("pipeline.object-reuse", "true");
        settings.setString("restart-strategy.type", "none");
        settings.setString("taskmanager.memory.network.min", "128mb");
        settings.setString("taskmanager.memory.network.max", "128mb");
        settings.setString("taskmanager.memory.managed.size", "64mb");
        settings.setString("io.tmp.dirs", System.getProperty("java.io.tmpdir"));
        return settings;
    }

    private static String totals(Table table) {
        StringBuilder out = new StringBuilder();
        table.currentSnapshot().summary().forEach((name, value) -> {
            if (name.startsWith("total-")) {
                out.append(out.isEmpty() ? "" : ", ").append('"').append(name).append("\": ").append(value);
            }
        });
        return out.toString();
    }
}
