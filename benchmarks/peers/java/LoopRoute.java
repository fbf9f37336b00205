import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A loop of the Java clients in transactions. Arguments: broker, name, rules. */
public final class LoopRoute {
    private static final int AT_ONCE = 10_000;

    public static void main(String[] arguments) throws Exception {
        var rules = new Rules(arguments[2]);
        var consumer = new KafkaConsumer<>(
                consumerProperties(arguments[0], arguments[1]),
                new ByteArrayDeserializer(), new ByteArrayDeserializer());
        var producer = new KafkaProducer<>(
                producerProperties(arguments[0], arguments[1]),
                new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        consumer.subscribe(List.of("dlq.in"));
        while (true) {
            var records = consumer.poll(Duration.ofMillis(500));
            if (records.isEmpty()) {
                continue;
            }
            Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
            producer.beginTransaction();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                producer.send(routed(rules, record));
                positions.put(
                        new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
            }
            producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
            producer.commitTransaction();
        }
    }

    private static ProducerRecord<byte[], byte[]> routed(
            Rules rules, ConsumerRecord<byte[], byte[]> record) {
        var route = rules.route(record.value(), record.headers());
        String identity = record.topic() + ":" + record.partition() + ":" + record.offset();
        var headers = record.headers();
        headers.remove(Rules.STACK_TRACE);
        headers.add("redrive.id", identity.getBytes(StandardCharsets.UTF_8));
        headers.add("redrive.rule", route.rule());
        return new ProducerRecord<>(route.target(), null, record.key(), record.value(), headers);
    }

    private static Properties consumerProperties(String servers, String group) {
        var properties = new Properties();
        properties.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
        properties.put(ConsumerConfig.GROUP_ID_CONFIG, group);
        properties.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        properties.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        properties.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        properties.put(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, AT_ONCE);
        properties.put(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, 8 << 20);
        return properties;
    }

    private static Properties producerProperties(String servers, String name) {
        var properties = new Properties();
        properties.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
        properties.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, name);
        properties.put(ProducerConfig.LINGER_MS_CONFIG, 20);
        properties.put(ProducerConfig.BATCH_SIZE_CONFIG, 256 * 1024);
        properties.put(ProducerConfig.BUFFER_MEMORY_CONFIG, 64L << 20);
        properties.put(ProducerConfig.COMPRESSION_TYPE_CONFIG, "lz4");
        return properties;
    }
}
