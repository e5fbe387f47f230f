import java.util.Arrays;
import java.util.BitSet;
import java.util.Properties;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Fills a topic: {@code FillTopic SERVERS TOPIC json|debezium MESSAGES KEYS}.
 *
 * <p>The message key names the row's key and decides on the partition. Prints one JSON object: what a table holds after
 * all of it, appended or upserted, as a number of rows and the sum of their checksums.
 */
public final class FillTopic {
    private static final long SEED = 7;

    private final KafkaProducer<byte[], byte[]> producer;
    private final String topic;
    private final AtomicReference<Exception> failure = new AtomicReference<>();
    private final SplittableRandom random = new SplittableRandom(SEED);
    private final Event event = new Event();
    private final StringBuilder text = new StringBuilder(1024);
    private final long[] live;
    private final BitSet alive;
    private long sent;
    private long bytes;
    private long appended;
    private long sum;

    private FillTopic(KafkaProducer<byte[], byte[]> producer, String topic, int keys) {
        this.producer = producer;
        this.topic = topic;
        this.live = new long[keys];
        this.alive = new BitSet(keys);
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("compression.type", "lz4");
        settings.put("batch.size", 1 << 18);
        settings.put("linger.ms", 50);
        settings.put("buffer.memory", 1L << 27);
        long messages = Long.parseLong(arguments[3]);
        int keys = Integer.parseInt(arguments[4]);
        ByteArraySerializer plain = new ByteArraySerializer();
        FillTopic fill;
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, plain, plain)) {
            fill = new FillTopic(producer, arguments[1], keys);
            if (arguments[2].equals("debezium")) {
                fill.changes(messages, keys);
            } else {
                fill.rows(messages, keys);
            }
            producer.flush();
        }
        if (fill.failure.get() != null) {
            throw fill.failure.get();
        }
        System.out.printf(
                "{\"messages\": %d, \"bytes\": %d, \"append\": {\"rows\": %d, \"checksum\": %d}, "
                        + "\"upsert\": {\"rows\": %d, \"checksum\": %d}}%n",
                fill.sent, fill.bytes, fill.appended, fill.sum, fill.alive.cardinality(), fill.liveSum());
    }

    private void rows(long messages, int keys) {
        for (long number = 0; number < messages; number++) {
            event.draw(random, keys, number);
            long checksum = event.checksum();
            appended++;
            sum += checksum;
            live[event.id] = checksum;
            alive.set(event.id);
            text.setLength(0);
            event.json(text, true);
            byte[] value = Bytes.ascii(text);
            text.setLength(0);
            send(Bytes.ascii(text.append(event.id)), value);
        }
    }

    /** A row's first change creates it, later ones update it or, one in thirty, delete it, with a tombstone behind. */
    private void changes(long messages, int keys) {
        byte[][] rows = new byte[keys][];
        for (long number = 0; sent < messages; number++) {
            event.draw(random, keys, number);
            byte[] before = rows[event.id];
            char op = before == null ? 'c' : random.nextInt(30) == 0 ? 'd' : 'u';
            byte[] after = null;
            if (op != 'd') {
                text.setLength(0);
                event.json(text, false);
                after = Bytes.ascii(text);
            }
            rows[event.id] = after;
            alive.set(event.id, after != null);
            live[event.id] = after == null ? 0 : event.checksum();
            text.setLength(0);
            byte[] key = Bytes.ascii(text.append("{\"id\":").append(event.id).append('}'));
            send(key, envelope(before, after, op, number));
            if (op == 'd' && sent < messages) {
                send(key, null);
            }
        }
    }

    private byte[] envelope(byte[] before, byte[] after, char op, long number) {
        long micros = event.micros;
        long lsn = 24_000_000 + number * 176;
        text.setLength(0);
        json(text.append("{\"before\":"), before);
        json(text.append(",\"after\":"), after);
        text.append(",\"source\":{\"version\":\"3.7.0.Final\",\"connector\":\"postgresql\",\"name\":\"shop\",\"ts_ms\":");
        text.append(micros / 1000).append(",\"snapshot\":\"false\",\"db\":\"shop\",\"sequence\":\"[\\\"").append(lsn - 56);
        text.append("\\\",\\\"").append(lsn).append("\\\"]\",\"ts_us\":").append(micros).append(",\"ts_ns\":");
        text.append(micros).append("000,\"schema\":\"public\",\"table\":\"events\",\"txId\":").append(700 + number);
        text.append(",\"lsn\":").append(lsn).append(",\"xmin\":null},\"transaction\":null,\"op\":\"").append(op);
        text.append("\",\"ts_ms\":").append(micros / 1000 + 40).append(",\"ts_us\":").append(micros + 40_321);
        text.append(",\"ts_ns\":").append(micros + 40_321).append("607}");
        return Bytes.ascii(text);
    }

    private static void json(StringBuilder out, byte[] row) {
        out.append(row == null ? "null" : new String(row, java.nio.charset.StandardCharsets.ISO_8859_1));
    }

    private void send(byte[] key, byte[] value) {
        sent++;
        bytes += value == null ? 0 : value.length;
        producer.send(new ProducerRecord<>(topic, key, value), (metadata, error) -> {
            if (error != null) {
                failure.set(error);
            }
        });
    }

    private long liveSum() {
        return Arrays.stream(live).sum();
    }
}
