import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Flink with its exactly-once sink on a local cluster. Arguments: broker, name, source, rules, folder. */
public final class FlinkRoute {
    /** Keeps the whole record: its headers and its place are wanted. */
    private static final class Whole
            implements KafkaRecordDeserializationSchema<ConsumerRecord<byte[], byte[]>> {
        @Override
        public void deserialize(
                ConsumerRecord<byte[], byte[]> record,
                Collector<ConsumerRecord<byte[], byte[]>> output) {
            output.collect(record);
        }

        @Override
        public TypeInformation<ConsumerRecord<byte[], byte[]>> getProducedType() {
            return TypeInformation.of(new TypeHint<>() {});
        }
    }

    /** Chooses the topic and adds the two headers. */
    private static final class Routing
            implements KafkaRecordSerializationSchema<ConsumerRecord<byte[], byte[]>> {
        private final String file;
        private transient Rules rules;

        Routing(String file) {
            this.file = file;
        }

        @Override
        public void open(
                SerializationSchema.InitializationContext context, KafkaSinkContext sinkContext) {
            try {
                rules = new Rules(file);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        @Override
        public ProducerRecord<byte[], byte[]> serialize(
                ConsumerRecord<byte[], byte[]> record, KafkaSinkContext context, Long timestamp) {
            return rules.forwarded(record);
        }
    }

    public static void main(String[] arguments) throws Exception {
        var configuration = new Configuration();
        configuration.setString("parallelism.default", "2");
        configuration.setString("pipeline.object-reuse", "true");
        configuration.setString("execution.checkpointing.interval", "1 s");
        configuration.setString("execution.checkpointing.storage", "filesystem");
        configuration.setString(
                "execution.checkpointing.dir", Path.of(arguments[4], "checkpoints").toUri().toString());
        var environment = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        var source = KafkaSource.<ConsumerRecord<byte[], byte[]>>builder()
                .setBootstrapServers(arguments[0])
                .setGroupId(arguments[1])
                .setTopics(arguments[2])
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setProperty(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed")
                .setProperty(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, "5000")
                .setDeserializer(new Whole())
                .build();
        var sink = KafkaSink.<ConsumerRecord<byte[], byte[]>>builder()
                .setBootstrapServers(arguments[0])
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix(arguments[1])
                .setKafkaProducerConfig(producerProperties())
                .setRecordSerializer(new Routing(arguments[3]))
                .build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "read").sinkTo(sink);
        environment.execute(arguments[1]);
    }

    private static Properties producerProperties() {
        var properties = new Properties();
        properties.setProperty(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, "600000");
        properties.setProperty(ProducerConfig.LINGER_MS_CONFIG, "20");
        properties.setProperty(ProducerConfig.BATCH_SIZE_CONFIG, "262144");
        properties.setProperty(ProducerConfig.BUFFER_MEMORY_CONFIG, "67108864");
        properties.setProperty(ProducerConfig.COMPRESSION_TYPE_CONFIG, "lz4");
        return properties;
    }
}
