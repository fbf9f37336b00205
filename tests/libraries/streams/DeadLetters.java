import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.DefaultProductionExceptionHandler;
import org.apache.kafka.streams.errors.ErrorHandlerContext;
import org.apache.kafka.streams.errors.LogAndContinueExceptionHandler;
import org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;

/**
 * A Kafka Streams application whose records fail to be deserialised (counts), to be processed
 * (orders), to be serialised (notes), and to be produced: the client refuses what comes of bills, the
 * broker what comes of slips.
 *
 * <p>Argument: the broker. Values that begin with "good" pass, but for those of counts.
 */
public class DeadLetters {
    /** Continues after the dead letter that the library's own handler makes. */
    public static class Continue extends DefaultProductionExceptionHandler {
        @Override
        public Response handleError(
                ErrorHandlerContext context, ProducerRecord<byte[], byte[]> record, Exception error) {
            return Response.resume(super.handleError(context, record, error).deadLetterQueueRecords());
        }

        @Override
        @SuppressWarnings("rawtypes")
        public Response handleSerializationError(
                ErrorHandlerContext context, ProducerRecord record, Exception error,
                SerializationExceptionOrigin origin) {
            return Response.resume(
                super.handleSerializationError(context, record, error, origin).deadLetterQueueRecords());
        }
    }

    public static void main(String[] arguments) {
        Serde<String> text = Serdes.String();
        Consumed<String, String> texts = Consumed.with(text, text);
        Produced<String, String> produced = Produced.with(text, text);
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream("counts", Consumed.with(text, Serdes.Integer()))
            .to("results", Produced.with(text, Serdes.Integer()));
        builder.stream("orders", texts).mapValues(DeadLetters::process).to("results", produced);
        Serde<String> refusing = Serdes.serdeFrom(
            (topic, note) -> {
                throw new SerializationException("no schema");
            },
            text.deserializer());
        builder.stream("notes", texts).to("results", Produced.with(text, refusing));
        builder.stream("bills", texts)
            .mapValues(bill -> isGood(bill) ? bill : bill.repeat(100_000)).to("results", produced);
        builder.stream("slips", texts)
            .mapValues(slip -> isGood(slip) ? slip : slip.repeat(1_000)).to("small", produced);
        Properties settings = new Properties();
        settings.putAll(Map.of(
            "bootstrap.servers", arguments[0],
            "application.id", "totals",
            "auto.offset.reset", "earliest",
            "commit.interval.ms", "500",
            "producer.max.request.size", "100000",
            "errors.dead.letter.queue.topic.name", "streams-dead",
            "deserialization.exception.handler", LogAndContinueExceptionHandler.class,
            "processing.exception.handler", LogAndContinueProcessingExceptionHandler.class,
            "production.exception.handler", Continue.class,
            "state.dir", arguments[1]));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    private static boolean isGood(String value) {
        return value != null && value.startsWith("good");
    }

    private static String process(String order) {
        if (isGood(order)) {
            return order;
        }
        throw new IllegalStateException("no stock", new java.net.SocketTimeoutException("Read timed out"));
    }
}
