import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.cli.ConnectStandalone;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;

/**
 * A sink of Kafka Connect whose records fail in the converter (json), in a transform (flat), and in
 * the sink: with a message and a cause (rows), and without a message (mute).
 *
 * <p>Arguments: the broker, and a folder for files.
 */
public class DeadLetters extends SinkConnector {
    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[1]);
        List<String> files = new ArrayList<>();
        files.add(write(folder, "worker", Map.of(
            "bootstrap.servers", arguments[0],
            "listeners", "http://localhost:0",
            "offset.storage.file.filename", folder.resolve("offsets").toString(),
            "plugin.discovery", "only_scan",
            "plugin.path", folder.resolve("plugins").toString(),
            "key.converter", "org.apache.kafka.connect.storage.StringConverter",
            "value.converter", "org.apache.kafka.connect.storage.StringConverter")));
        String json = "org.apache.kafka.connect.json.JsonConverter";
        files.add(sink(folder, "json", Map.of("value.converter", json)));
        files.add(sink(folder, "flat", Map.of(
            "transforms", "key",
            "transforms.key.type", "org.apache.kafka.connect.transforms.ValueToKey",
            "transforms.key.fields", "id")));
        files.add(sink(folder, "rows", Map.of()));
        files.add(sink(folder, "mute", Map.of()));
        ConnectStandalone.main(files.toArray(String[]::new));
    }

    private static String sink(Path folder, String topic, Map<String, String> more) throws Exception {
        Map<String, String> settings = new java.util.TreeMap<>(Map.of(
            "name", topic + "-sink",
            "connector.class", DeadLetters.class.getName(),
            "topics", topic,
            "errors.tolerance", "all",
            "errors.deadletterqueue.topic.name", "connect-dead",
            "errors.deadletterqueue.topic.replication.factor", "1",
            "errors.deadletterqueue.context.headers.enable", "true",
            "consumer.override.auto.offset.reset", "earliest"));
        settings.putAll(more);
        return write(folder, topic, settings);
    }

    private static String write(Path folder, String name, Map<String, String> settings) throws Exception {
        List<String> lines = settings.entrySet().stream().map(it -> it.getKey() + "=" + it.getValue()).toList();
        return Files.write(folder.resolve(name + ".properties"), lines).toString();
    }

    /** Reports every record as one that it cannot write. */
    public static class Failing extends SinkTask {
        @Override
        public void put(Collection<SinkRecord> records) {
            for (SinkRecord record : records) {
                Exception error = record.topic().equals("mute")
                    ? new NullPointerException()
                    : new ConnectException("cannot write", new java.sql.SQLTransientConnectionException("no connection"));
                context.errantRecordReporter().report(record, error);
            }
        }

        @Override
        public void start(Map<String, String> settings) {}

        @Override
        public void stop() {}

        @Override
        public String version() {
            return "1";
        }
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Failing.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int most) {
        return List.of(Map.of());
    }

    @Override
    public ConfigDef config() {
        return new ConfigDef();
    }

    @Override
    public void start(Map<String, String> settings) {}

    @Override
    public void stop() {}

    @Override
    public String version() {
        return "1";
    }
}
