import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadFeature;
import java.io.IOException;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;

/** A JSON event to a row of Flink's: one pass over the parser's tokens, no tree, no reflection. */
final class EventDecoder implements DeserializationSchema<RowData> {
    private static final long serialVersionUID = 1L;
    private static final JsonFactory FACTORY =
            JsonFactory.builder().enable(StreamReadFeature.USE_FAST_DOUBLE_PARSER).build();

    private final TypeInformation<RowData> type;

    EventDecoder(TypeInformation<RowData> type) {
        this.type = type;
    }

    @Override
    public RowData deserialize(byte[] message) throws IOException {
        GenericRowData row = new GenericRowData(7);
        try (JsonParser parser = FACTORY.createParser(message)) {
            parser.nextToken();
            String field;
            while ((field = parser.nextFieldName()) != null) {
                if (parser.nextToken() == JsonToken.VALUE_NULL) {
                    continue;
                }
                switch (field) {
                    case "id" -> row.setField(0, parser.getLongValue());
                    case "name" -> row.setField(1, StringData.fromString(parser.getText()));
                    case "category" -> row.setField(2, StringData.fromString(parser.getText()));
                    case "amount" -> row.setField(3, parser.getDoubleValue());
                    case "ts" -> row.setField(4, timestamp(parser.getTextCharacters(), parser.getTextOffset()));
                    case "payload" -> row.setField(5, StringData.fromString(parser.getText()));
                    case "seq" -> row.setField(6, parser.getLongValue());
                    default -> parser.skipChildren();
                }
            }
        }
        return row;
    }

    /** 2024-01-31T12:34:56.123456, by its digits. */
    private static TimestampData timestamp(char[] text, int at) {
        int year = number(text, at, 4);
        int month = number(text, at + 5, 2);
        int day = number(text, at + 8, 2);
        int seconds = number(text, at + 11, 2) * 3600 + number(text, at + 14, 2) * 60 + number(text, at + 17, 2);
        int micros = number(text, at + 20, 6);
        return TimestampData.fromEpochMillis(
                (epochDay(year, month, day) * 86_400 + seconds) * 1000 + micros / 1000, micros % 1000 * 1000);
    }

    private static long epochDay(int year, int month, int day) {
        int shifted = month <= 2 ? year - 1 : year;
        int era = Math.floorDiv(shifted, 400);
        int ofEra = shifted - era * 400;
        int ofYear = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
        return era * 146_097L + ofEra * 365L + ofEra / 4 - ofEra / 100 + ofYear - 719_468;
    }

    private static int number(char[] text, int at, int digits) {
        int value = 0;
        for (int each = at; each < at + digits; each++) {
            value = value * 10 + text[each] - '0';
        }
        return value;
    }

    @Override
    public boolean isEndOfStream(RowData next) {
        return false;
    }

    @Override
    public TypeInformation<RowData> getProducedType() {
        return type;
    }
}
