import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;

/** Kafka Streams with exactly_once_v2. Arguments: broker, name, source, rules, folder for its state. */
public final class StreamsRoute {
    private static Rules rules;

    /** Adds the two headers. */
    private static final class Mark extends ContextualFixedKeyProcessor<byte[], byte[], byte[]> {
        @Override
        public void process(FixedKeyRecord<byte[], byte[]> record) {
            var place = context().recordMetadata().orElseThrow();
            String identity = place.topic() + ":" + place.partition() + ":" + place.offset();
            var route = rules.route(record.value(), record.headers());
            record.headers().remove(Rules.STACK_TRACE);
            record.headers().add("redrive.id", identity.getBytes(StandardCharsets.UTF_8));
            record.headers().add("redrive.rule", route.rule());
            context().forward(record);
        }
    }

    public static void main(String[] arguments) throws Exception {
        rules = new Rules(arguments[3]);
        var properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 1_000);
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.MAX_POLL_RECORDS_CONFIG), 5_000);
        properties.put(StreamsConfig.producerPrefix(ProducerConfig.COMPRESSION_TYPE_CONFIG), "lz4");
        properties.put(StreamsConfig.producerPrefix(ProducerConfig.BATCH_SIZE_CONFIG), 256 * 1024);
        properties.put(StreamsConfig.producerPrefix(ProducerConfig.BUFFER_MEMORY_CONFIG), 64L << 20);
        var builder = new StreamsBuilder();
        builder.stream(arguments[2], Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
                .processValues(Mark::new)
                .to(
                        (key, value, context) -> rules.route(value, context.headers()).target(),
                        Produced.with(Serdes.ByteArray(), Serdes.ByteArray()));
        var streams = new KafkaStreams(builder.build(), properties);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
