import java.time.Duration;
import java.util.ArrayList;
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

/**
 * A loop of the Java clients in transactions. Arguments: broker, name, source, rules, folder, and
 * "ceiling" to read and route everything before the first transaction.
 */
public final class LoopRoute {
    private static final int AT_ONCE = 10_000;

    /** A record to write, and how far its partition is read with it. */
    private record Routed(
            ProducerRecord<byte[], byte[]> output, TopicPartition lane, OffsetAndMetadata next) {}

    public static void main(String[] arguments) throws Exception {
        var rules = new Rules(arguments[3]);
        var consumer = new KafkaConsumer<>(
                consumerProperties(arguments[0], arguments[1]),
                new ByteArrayDeserializer(), new ByteArrayDeserializer());
        var producer = new KafkaProducer<>(
                producerProperties(arguments[0], arguments[1]),
                new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        consumer.subscribe(List.of(arguments[2]));
        if (arguments.length > 5) {
            writeAll(consumer, producer, readAll(rules, consumer));
        }
        while (true) {
            write(consumer, producer, read(rules, consumer));
        }
    }

    private static List<Routed> read(Rules rules, KafkaConsumer<byte[], byte[]> consumer) {
        List<Routed> read = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
            read.add(routed(rules, record));
        }
        return read;
    }

    private static List<Routed> readAll(Rules rules, KafkaConsumer<byte[], byte[]> consumer) {
        List<Routed> all = new ArrayList<>();
        List<Routed> read = List.of();
        while (all.isEmpty() || !read.isEmpty()) {
            read = read(rules, consumer);
            all.addAll(read);
        }
        return all;
    }

    private static void writeAll(
            KafkaConsumer<byte[], byte[]> consumer,
            KafkaProducer<byte[], byte[]> producer,
            List<Routed> all) {
        for (int begin = 0; begin < all.size(); begin += AT_ONCE) {
            write(consumer, producer, all.subList(begin, Math.min(begin + AT_ONCE, all.size())));
        }
    }

    private static void write(
            KafkaConsumer<byte[], byte[]> consumer,
            KafkaProducer<byte[], byte[]> producer,
            List<Routed> records) {
        if (records.isEmpty()) {
            return;
        }
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        producer.beginTransaction();
        for (Routed record : records) {
            producer.send(record.output);
            positions.put(record.lane, record.next);
        }
        producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
        producer.commitTransaction();
    }

    private static Routed routed(Rules rules, ConsumerRecord<byte[], byte[]> record) {
        return new Routed(
                rules.forwarded(record),
                new TopicPartition(record.topic(), record.partition()),
                new OffsetAndMetadata(record.offset() + 1));
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
