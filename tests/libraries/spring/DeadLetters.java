import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.IntegerDeserializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
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
import org.springframework.kafka.support.serializer.ErrorHandlingDeserializer;
import org.springframework.retry.annotation.Backoff;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;
import org.springframework.util.backoff.FixedBackOff;

/**
 * A service made with Spring Kafka. Its listeners always fail: that of payments and then that of
 * payments-dlt, whose dead letters are on payments-dlt-dlt; and that of shipments, with retry topics.
 * Records of amounts have values that cannot be deserialised, those of names keys. The recoverer keeps
 * Spring's header of the exception on kept.
 *
 * <p>Argument: the broker.
 */
public class DeadLetters {
    private static String servers;

    public static void main(String[] arguments) throws InterruptedException {
        servers = arguments[0];
        var context = new AnnotationConfigApplicationContext(Service.class);
        context.registerShutdownHook();
        Thread.currentThread().join();
    }

    private static void fail() {
        throw new IllegalStateException("no answer", new java.net.SocketTimeoutException("Read timed out"));
    }

    @Configuration
    @EnableKafka
    static class Service extends RetryTopicConfigurationSupport {
        private static Deserializer<Object> checked(Deserializer<?> deserializer) {
            @SuppressWarnings("unchecked")
            var plain = (Deserializer<Object>) deserializer;
            return new ErrorHandlingDeserializer<>(plain);
        }

        private ConcurrentKafkaListenerContainerFactory<Object, Object> factory(
                Deserializer<?> keys, Deserializer<?> values, boolean keepsException) {
            var factory = new ConcurrentKafkaListenerContainerFactory<Object, Object>();
            factory.setConsumerFactory(new DefaultKafkaConsumerFactory<>(
                Map.of("bootstrap.servers", servers, "auto.offset.reset", "earliest"),
                checked(keys), checked(values)));
            var recoverer = new DeadLetterPublishingRecoverer(defaultRetryTopicKafkaTemplate());
            recoverer.setRetainExceptionHeader(keepsException);
            factory.setCommonErrorHandler(new DefaultErrorHandler(recoverer, new FixedBackOff(0, 0)));
            return factory;
        }

        @Bean
        KafkaTemplate<Object, Object> defaultRetryTopicKafkaTemplate() {
            var serializer = new ByteArraySerializer();
            @SuppressWarnings({"unchecked", "rawtypes"})
            var factory = new DefaultKafkaProducerFactory<Object, Object>(
                Map.of("bootstrap.servers", servers), (org.apache.kafka.common.serialization.Serializer) serializer,
                (org.apache.kafka.common.serialization.Serializer) serializer);
            return new KafkaTemplate<>(factory);
        }

        @Bean
        ConcurrentKafkaListenerContainerFactory<Object, Object> kafkaListenerContainerFactory() {
            return factory(new ByteArrayDeserializer(), new ByteArrayDeserializer(), false);
        }

        @Bean
        ConcurrentKafkaListenerContainerFactory<Object, Object> numbers() {
            return factory(new ByteArrayDeserializer(), new IntegerDeserializer(), false);
        }

        @Bean
        ConcurrentKafkaListenerContainerFactory<Object, Object> keptNumbers() {
            return factory(new ByteArrayDeserializer(), new IntegerDeserializer(), true);
        }

        @Bean
        ConcurrentKafkaListenerContainerFactory<Object, Object> numberedKeys() {
            return factory(new IntegerDeserializer(), new ByteArrayDeserializer(), false);
        }

        @Bean
        KafkaAdmin admin() {
            return new KafkaAdmin(Map.of("bootstrap.servers", servers));
        }

        @Bean
        TaskScheduler scheduler() {
            return new ThreadPoolTaskScheduler();
        }

        @KafkaListener(topics = {"payments", "payments-dlt"}, groupId = "billing")
        void pay(ConsumerRecord<?, ?> payment) {
            fail();
        }

        @KafkaListener(topics = "amounts", groupId = "billing", containerFactory = "numbers")
        void add(ConsumerRecord<?, ?> amount) {}

        @KafkaListener(topics = "kept", groupId = "billing", containerFactory = "keptNumbers")
        void keep(ConsumerRecord<?, ?> amount) {}

        @KafkaListener(topics = "names", groupId = "billing", containerFactory = "numberedKeys")
        void name(ConsumerRecord<?, ?> name) {}

        @RetryableTopic(attempts = "3", numPartitions = "1", replicationFactor = "1", backoff = @Backoff(delay = 500))
        @KafkaListener(topics = "shipments", groupId = "shipping")
        void ship(ConsumerRecord<?, ?> shipment) {
            fail();
        }
    }
}
