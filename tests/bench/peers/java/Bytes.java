import java.nio.charset.StandardCharsets;

/** Text to bytes where all of it is ASCII. */
final class Bytes {
    private Bytes() {}

    static byte[] ascii(StringBuilder text) {
        return text.toString().getBytes(StandardCharsets.ISO_8859_1);
    }
}
