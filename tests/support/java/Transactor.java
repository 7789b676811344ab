import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactions of Apache Kafka's own clients; tests/e2e/transactors/__init__.py says what goes in and out. */
public final class Transactor {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(200);
    private static final String END = "end";

    private final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();

    public static void main(String[] arguments) throws IOException {
        Transactor transactor = new Transactor();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            System.out.println(JSON.writeValueAsString(transactor.result(JSON.readTree(line))));
            System.out.flush();
        }
    }

    private ObjectNode result(JsonNode order) {
        ObjectNode result = JSON.createObjectNode();
        try {
            carryOut(order, result);
        } catch (Exception error) {
            error.printStackTrace();
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            result.put("kind", cause.getClass().getSimpleName());
            result.put("error", String.valueOf(cause.getMessage()));
        }
        return result;
    }

    private void carryOut(JsonNode order, ObjectNode result) throws Exception {
        switch (order.get("order").asText()) {
            case "init" -> producers.put(
                order.get("producer").asText(), initialized(order, order.get("timeout_ms").asInt()));
            case "begin" -> named(order).beginTransaction();
            case "send" -> send(order);
            case "end" -> end(named(order), order.get("commit").asBoolean());
            case "read" -> read(order, result.putArray("values"));
            case "copy" -> copy(order);
            default -> throw new IllegalArgumentException(order.toString());
        }
    }

    private KafkaProducer<String, String> named(JsonNode order) {
        return producers.get(order.get("producer").asText());
    }

    private static KafkaProducer<String, String> initialized(JsonNode order, int timeoutMs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", order.get("bootstrap").asText());
        settings.put("transactional.id", order.get("id").asText());
        settings.put("transaction.timeout.ms", String.valueOf(timeoutMs));
        settings.put("reconnect.backoff.max.ms", "500");
        StringSerializer strings = new StringSerializer();
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings, strings, strings);
        producer.initTransactions();
        return producer;
    }

    private void send(JsonNode order) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode value : order.get("values")) {
            sent.add(named(order).send(new ProducerRecord<>(
                order.get("topic").asText(), order.get("partition").asInt(), null, value.asText())));
        }
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
    }

    private static void end(KafkaProducer<String, String> producer, boolean commit) {
        if (commit) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }

    private static Properties readerSettings(JsonNode order, boolean committed) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", order.get("bootstrap").asText());
        settings.put("isolation.level", committed ? "read_committed" : "read_uncommitted");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("fetch.max.wait.ms", "100");
        settings.put("reconnect.backoff.max.ms", "500");
        return settings;
    }

    private static void read(JsonNode order, ArrayNode values) {
        List<TopicPartition> places = new ArrayList<>();
        List<ArrayNode> found = new ArrayList<>();
        for (int partition = 0; partition < order.get("partitions").asInt(); partition++) {
            places.add(new TopicPartition(order.get("topic").asText(), partition));
            found.add(values.addArray());
        }
        Properties settings = readerSettings(order, order.get("committed").asBoolean());
        StringDeserializer strings = new StringDeserializer();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, strings, strings)) {
            consumer.assign(places);
            while (!found.stream().allMatch(Transactor::isOver)) {
                for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                    ArrayNode ofPartition = found.get(record.partition());
                    if (!isOver(ofPartition)) {
                        ofPartition.add(record.value());
                    }
                }
            }
        }
    }

    private static boolean isOver(ArrayNode values) {
        return !values.isEmpty() && values.get(values.size() - 1).asText().equals(END);
    }

    private static void copy(JsonNode order) throws InterruptedException {
        Properties settings = readerSettings(order, true);
        settings.put("group.id", order.get("group").asText());
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "500");
        settings.put("max.poll.records", order.get("batch").asText());
        int abortEvery = order.get("abort_every").asInt();
        StringDeserializer strings = new StringDeserializer();
        try (KafkaProducer<String, String> producer = initialized(order, 60_000);
            KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, strings, strings)) {
            consumer.subscribe(List.of(order.get("source").asText()));
            int ends = 0;
            for (int number = 1; ends < order.get("partitions").asInt(); number++) {
                ConsumerRecords<String, String> records = consumer.poll(POLL);
                while (records.isEmpty()) {
                    records = consumer.poll(POLL);
                }
                boolean toAbort = abortEvery > 0 && number % abortEvery == 0;
                if (isCopied(producer, consumer, records, order, toAbort)) {
                    for (ConsumerRecord<String, String> record : records) {
                        ends += record.value().equals(END) ? 1 : 0;
                    }
                } else {
                    rewind(consumer);
                }
            }
        }
    }

    /** As the producer's documentation says: three errors are fatal, after others the transaction is aborted. */
    private static boolean isCopied(
        KafkaProducer<String, String> producer,
        KafkaConsumer<String, String> consumer,
        ConsumerRecords<String, String> records,
        JsonNode order,
        boolean toAbort
    ) throws InterruptedException {
        String target = order.get("target").asText();
        producer.beginTransaction();
        try {
            Map<TopicPartition, OffsetAndMetadata> following = new HashMap<>();
            for (ConsumerRecord<String, String> record : records) {
                producer.send(new ProducerRecord<>(target, record.partition(), null, record.value()));
                following.put(
                    new TopicPartition(record.topic(), record.partition()),
                    new OffsetAndMetadata(record.offset() + 1));
            }
            Thread.sleep(order.get("pause_ms").asInt());
            producer.sendOffsetsToTransaction(following, consumer.groupMetadata());
            if (!toAbort) {
                commit(producer);
                return true;
            }
            producer.flush();
        } catch (ProducerFencedException | OutOfOrderSequenceException | InvalidProducerEpochException fatal) {
            throw fatal;
        } catch (KafkaException abortable) {
            abortable.printStackTrace();
        }
        producer.abortTransaction();
        return false;
    }

    /** A commit whose outcome is not known is repeated: it may have happened. */
    private static void commit(KafkaProducer<String, String> producer) {
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException unknown) {
                unknown.printStackTrace();
            }
        }
    }

    private static void rewind(KafkaConsumer<String, String> consumer) {
        consumer.committed(consumer.assignment()).forEach(
            (place, offset) -> consumer.seek(place, offset == null ? 0 : offset.offset()));
    }
}
