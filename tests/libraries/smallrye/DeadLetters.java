import jakarta.enterprise.context.ApplicationScoped;
import java.util.concurrent.CompletionStage;
import org.eclipse.microprofile.reactive.messaging.Incoming;
import org.eclipse.microprofile.reactive.messaging.Message;
import org.jboss.weld.environment.se.Weld;

/**
 * A service made with SmallRye Reactive Messaging, as Quarkus has it. Records of prices fail in
 * processing, those of sizes cannot be deserialised, those of tries have topics of delayed retries.
 *
 * <p>Argument: the broker.
 */
@ApplicationScoped
public class DeadLetters {
    public static void main(String[] arguments) throws InterruptedException {
        System.setProperty("kafka.bootstrap.servers", arguments[0]);
        channel("prices", "StringDeserializer", "dead-letter-queue");
        channel("sizes", "IntegerDeserializer", "dead-letter-queue");
        set("sizes", "fail-on-deserialization-failure", "false");
        channel("tries", "StringDeserializer", "delayed-retry-topic");
        set("tries", "delayed-retry-topic.topics", "tries-retry_500,tries-retry_900");
        set("tries", "delayed-retry-topic.timeout", "60000");
        new Weld().addBeanClass(DeadLetters.class).initialize();
        Thread.currentThread().join();
    }

    private static void channel(String name, String deserializer, String strategy) {
        set(name, "connector", "smallrye-kafka");
        set(name, "topic", name);
        set(name, "group.id", "stock");
        set(name, "auto.offset.reset", "earliest");
        set(name, "value.deserializer", "org.apache.kafka.common.serialization." + deserializer);
        set(name, "failure-strategy", strategy);
        set(name, "dead-letter-queue.topic", "smallrye-dead");
    }

    private static void set(String channel, String name, String value) {
        System.setProperty("mp.messaging.incoming." + channel + "." + name, value);
    }

    @Incoming("prices")
    public CompletionStage<Void> price(Message<String> price) {
        return price.nack(error());
    }

    @Incoming("sizes")
    public CompletionStage<Void> size(Message<Integer> size) {
        return size.ack();
    }

    @Incoming("tries")
    public CompletionStage<Void> repeat(Message<String> message) {
        return message.nack(error());
    }

    private static Exception error() {
        return new IllegalStateException("no answer", new java.net.SocketTimeoutException("Read timed out"));
    }
}
