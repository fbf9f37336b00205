import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.DltHandler;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.kafka.retrytopic.RetryTopicConfigurationSupport;
import org.springframework.retry.annotation.Backoff;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;
import org.springframework.util.backoff.FixedBackOff;

/**
 * A service whose processing fails as often as each payment says, with Spring's retry topics or with
 * a dead-letter topic only.
 *
 * <p>Arguments: the broker, and "retryable" or "recoverer". Every processing is a line on standard
 * output: "ok", "failed" or "dead", the time in milliseconds, and the payment's number.
 */
public class Payments {
    private static String servers;
    private static final Map<Integer, Integer> failures = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws InterruptedException {
        servers = arguments[0];
        var kind = arguments[1].equals("retryable") ? Retryable.class : Recoverer.class;
        var context = new AnnotationConfigApplicationContext(kind);
        context.registerShutdownHook();
        System.out.println("ready 0 0");
        Thread.currentThread().join();
    }

    private static void process(ConsumerRecord<byte[], byte[]> payment) {
        String[] words = new String(payment.value(), StandardCharsets.US_ASCII).split(" ");
        int number = Integer.parseInt(words[0]);
        boolean fails = failures.merge(number, 1, Integer::sum) <= Integer.parseInt(words[1]);
        print(fails ? "failed" : "ok", number);
        if (fails) {
            throw new IllegalStateException("the bank does not answer");
        }
    }

    private static synchronized void print(String what, int number) {
        System.out.println(what + " " + System.currentTimeMillis() + " " + number);
    }

    /** Clients, and a container for each partition. */
    static class Clients extends RetryTopicConfigurationSupport {
        @Bean
        KafkaTemplate<byte[], byte[]> defaultRetryTopicKafkaTemplate() {
            return new KafkaTemplate<>(new DefaultKafkaProducerFactory<>(
                Map.of("bootstrap.servers", servers),
                new ByteArraySerializer(), new ByteArraySerializer()));
        }

        @Bean
        ConcurrentKafkaListenerContainerFactory<byte[], byte[]> kafkaListenerContainerFactory() {
            var factory = new ConcurrentKafkaListenerContainerFactory<byte[], byte[]>();
            factory.setConsumerFactory(new DefaultKafkaConsumerFactory<>(
                Map.of("bootstrap.servers", servers, "auto.offset.reset", "earliest",
                    "isolation.level", "read_committed"),
                new ByteArrayDeserializer(), new ByteArrayDeserializer()));
            factory.setConcurrency(4);
            return factory;
        }

        @Bean
        KafkaAdmin admin() {
            return new KafkaAdmin(Map.of("bootstrap.servers", servers));
        }

        @Bean
        TaskScheduler scheduler() {
            return new ThreadPoolTaskScheduler();
        }
    }

    @Configuration
    @EnableKafka
    static class Retryable extends Clients {
        @RetryableTopic(
            attempts = "4", numPartitions = "4", replicationFactor = "1",
            backoff = @Backoff(delay = 1000, multiplier = 2, maxDelay = 4000))
        @KafkaListener(topics = "payments", groupId = "payments")
        void listen(ConsumerRecord<byte[], byte[]> payment) {
            process(payment);
        }

        @DltHandler
        void dead(ConsumerRecord<byte[], byte[]> payment) {
            String value = new String(payment.value(), StandardCharsets.US_ASCII);
            print("dead", Integer.parseInt(value.split(" ")[0]));
        }
    }

    @Configuration
    @EnableKafka
    static class Recoverer extends Clients {
        @Bean
        DefaultErrorHandler errorHandler(
                KafkaTemplate<byte[], byte[]> template,
                ConcurrentKafkaListenerContainerFactory<byte[], byte[]> factory) {
            var handler = new DefaultErrorHandler(
                new DeadLetterPublishingRecoverer(template), new FixedBackOff(0, 0));
            factory.setCommonErrorHandler(handler);
            return handler;
        }

        @KafkaListener(topics = "payments", groupId = "payments")
        void listen(ConsumerRecord<byte[], byte[]> payment) {
            process(payment);
        }
    }
}
