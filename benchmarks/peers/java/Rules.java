import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Predicate;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;

/** The rules table as a Java program without Redrive reads it: an ordered loop over its rules. */
final class Rules {
    /** What a rule says: the target, and its line in the table in digits. */
    record Route(String target, byte[] rule) {}

    private record Test(int field, Predicate<String> takes) {}

    private record Rule(List<Test> tests, Route route) {}

    /** The header that stays behind. */
    static final String STACK_TRACE = "kafka_dlt-exception-stacktrace";

    private static final String[] HEADERS = {
        "kafka_dlt-original-topic",
        "kafka_dlt-original-consumer-group",
        "kafka_dlt-exception-cause-fqcn"
    };

    private final boolean isSpring;
    private final List<Rule> rules = new ArrayList<>();

    Rules(String file) throws IOException {
        JsonNode root = new ObjectMapper().readTree(new File(file));
        isSpring = root.get("form").asText().equals("spring");
        List<String> fields = new ArrayList<>();
        root.get("fields").forEach(name -> fields.add(name.asText()));
        for (JsonNode rule : root.get("rules")) {
            List<Test> tests = new ArrayList<>();
            for (var it : rule.get("when").properties()) {
                tests.add(new Test(fields.indexOf(it.getKey()), test(it.getValue().asText())));
            }
            byte[] line = rule.get("line").asText().getBytes(StandardCharsets.UTF_8);
            rules.add(new Rule(tests, new Route(rule.get("target").asText(), line)));
        }
    }

    /** The target of a record, and the rule that chose it. */
    Route route(byte[] value, Headers headers) {
        String[] fields = isSpring ? ofHeaders(headers) : ofDeadLetterHeader(value);
        for (Rule rule : rules) {
            if (takes(rule, fields)) {
                return rule.route;
            }
        }
        throw new IllegalStateException("the last rule takes every record");
    }

    /** The record to write for one that was read. */
    ProducerRecord<byte[], byte[]> forwarded(ConsumerRecord<byte[], byte[]> record) {
        Headers headers = record.headers();
        Route route = route(record.value(), headers);
        String identity = record.topic() + ":" + record.partition() + ":" + record.offset();
        headers.remove(STACK_TRACE);
        headers.add("redrive.id", identity.getBytes(StandardCharsets.UTF_8));
        headers.add("redrive.rule", route.rule());
        return new ProducerRecord<>(route.target(), null, record.key(), record.value(), headers);
    }

    private static boolean takes(Rule rule, String[] fields) {
        for (Test test : rule.tests) {
            if (!test.takes.test(fields[test.field])) {
                return false;
            }
        }
        return true;
    }

    private static Predicate<String> test(String text) {
        if (!text.contains("*") && !text.contains("?")) {
            return text::equals;
        }
        String expression = Pattern.quote(text).replace("*", "\\E.*\\Q").replace("?", "\\E.\\Q");
        return Pattern.compile(expression, Pattern.DOTALL).asMatchPredicate();
    }

    private static String[] ofHeaders(Headers headers) {
        String[] fields = new String[HEADERS.length];
        for (int field = 0; field < HEADERS.length; field++) {
            Header header = headers.lastHeader(HEADERS[field]);
            fields[field] = header == null ? "" : new String(header.value(), StandardCharsets.UTF_8);
        }
        return fields;
    }

    private static String[] ofDeadLetterHeader(byte[] value) {
        int reason = ByteBuffer.wrap(value).order(ByteOrder.LITTLE_ENDIAN).getInt(8);
        return new String[] {text(value, 12), text(value, 60), Integer.toString(reason)};
    }

    private static String text(byte[] value, int begin) {
        return new String(value, begin, 48, StandardCharsets.UTF_8).stripTrailing();
    }
}
