import java.util.SplittableRandom;
import java.util.zip.CRC32;

/**
 * One row of the comparison's tables, its columns drawn from a seeded generator: the same rows on every machine.
 *
 * <p>{@link #checksum} is CRC-32 of the columns as text with bars between them, cents for the amount and microseconds
 * for the timestamp; tables are compared by the sum over their rows.
 */
final class Event {
    static final long EPOCH_MICROS = 1_704_067_200_000_000L;
    private static final char[] HEX = "0123456789abcdef".toCharArray();

    int id;
    long customer;
    int category;
    int cents;
    long micros;
    final char[] payload = new char[60];
    long seq;
    private final CRC32 crc = new CRC32();
    private final StringBuilder text = new StringBuilder(256);

    void draw(SplittableRandom random, int keys, long number) {
        id = random.nextInt(keys);
        customer = random.nextLong(10_000_000_000L, 100_000_000_000L);
        category = random.nextInt(16);
        cents = random.nextInt(100_000);
        micros = EPOCH_MICROS + number * 1_000 + random.nextInt(1_000);
        for (int at = 0; at < payload.length; at += 15) {
            long bits = random.nextLong();
            for (int digit = 0; digit < 15; digit++, bits >>>= 4) {
                payload[at + digit] = HEX[(int) bits & 15];
            }
        }
        seq = number;
    }

    /** The row as a JSON object; the timestamp is ISO text, or, as Debezium writes it, microseconds. */
    void json(StringBuilder out, boolean timestampAsText) {
        out.append("{\"id\":").append(id).append(",\"name\":\"customer-").append(customer);
        out.append("\",\"category\":\"category-");
        padded(out, category, 2);
        out.append("\",\"amount\":").append(cents / 100).append('.');
        padded(out, cents % 100, 2);
        out.append(",\"ts\":");
        if (timestampAsText) {
            iso(out.append('"'), micros).append('"');
        } else {
            out.append(micros);
        }
        out.append(",\"payload\":\"").append(payload).append("\",\"seq\":").append(seq).append('}');
    }

    long checksum() {
        text.setLength(0);
        text.append(id).append("|customer-").append(customer).append("|category-");
        padded(text, category, 2);
        text.append('|').append(cents).append('|').append(micros).append('|').append(payload).append('|').append(seq);
        crc.reset();
        crc.update(Bytes.ascii(text));
        return crc.getValue();
    }

    private static void padded(StringBuilder out, long value, int width) {
        String digits = Long.toString(value);
        for (int at = digits.length(); at < width; at++) {
            out.append('0');
        }
        out.append(digits);
    }

    private static StringBuilder iso(StringBuilder out, long micros) {
        java.time.LocalDate day = java.time.LocalDate.ofEpochDay(Math.floorDiv(micros, 86_400_000_000L));
        long left = Math.floorMod(micros, 86_400_000_000L);
        padded(out, day.getYear(), 4);
        padded(out.append('-'), day.getMonthValue(), 2);
        padded(out.append('-'), day.getDayOfMonth(), 2);
        padded(out.append('T'), left / 3_600_000_000L, 2);
        padded(out.append(':'), left / 60_000_000L % 60, 2);
        padded(out.append(':'), left / 1_000_000L % 60, 2);
        padded(out.append('.'), left % 1_000_000L, 6);
        return out;
    }
}
