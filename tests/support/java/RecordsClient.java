import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Apache Kafka's Java client for the end-to-end tests: one JSON order a line on stdin, one JSON answer
 * a line on stdout. Records travel in files; tests/support/record_file.py describes their layout.
 */
public final class RecordsClient {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int NULL = -1;

    /** Between the orders "position" and "read". */
    private KafkaConsumer<byte[], byte[]> positioned;
    private JsonNode positionedBy;

    public static void main(String[] arguments) throws IOException {
        RecordsClient client = new RecordsClient();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            System.out.println(JSON.writeValueAsString(client.answer(JSON.readTree(line))));
            System.out.flush();
        }
    }

    private ObjectNode answer(JsonNode order) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            carryOut(order, answer);
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            boolean exists = cause instanceof TopicExistsException;
            answer.put("kind", exists ? "TopicExists" : cause.getClass().getSimpleName());
            answer.put("error", String.valueOf(cause.getMessage()));
        }
        return answer;
    }

    private void carryOut(JsonNode order, ObjectNode answer) throws Exception {
        switch (order.get("order").asText()) {
            case "create" -> create(order);
            case "describe" -> describe(order, answer);
            case "produce" -> produce(order, answer);
            case "position" -> position(order);
            case "read" -> read();
            case "end" -> end(order, answer);
            default -> throw new IllegalArgumentException("unknown order");
        }
    }

    private void create(JsonNode order) throws Exception {
        NewTopic topic = new NewTopic(order.get("topic").asText(), order.get("partition_count").asInt(), (short) 1);
        try (Admin admin = Admin.create(settings(order))) {
            admin.createTopics(List.of(topic)).all().get(timeoutMs(order), TimeUnit.MILLISECONDS);
        }
    }

    private void describe(JsonNode order, ObjectNode answer) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(order)) {
            answer.put("partition_count", consumer.partitionsFor(order.get("topic").asText()).size());
        }
    }

    private void produce(JsonNode order, ObjectNode answer) throws Exception {
        Map<String, Object> settings = settings(order);
        settings.put("compression.type", order.get("codec").asText());
        settings.put("enable.idempotence", order.get("idempotent").asBoolean());
        settings.put("acks", "all");
        settings.put("linger.ms", 20);
        settings.put("delivery.timeout.ms", (int) timeoutMs(order));
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        var serializer = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, serializer, serializer);
                DataInputStream file = input(order)) {
            while (true) {
                ProducerRecord<byte[], byte[]> record = readRecord(file, order.get("topic").asText());
                if (record == null) {
                    break;
                }
                sent.add(producer.send(record));
            }
            producer.flush();
            var offsets = answer.putArray("offsets");
            for (Future<RecordMetadata> future : sent) {
                offsets.add(future.get(timeoutMs(order), TimeUnit.MILLISECONDS).offset());
            }
        }
    }

    private void position(JsonNode order) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (JsonNode partition : order.get("partitions")) {
            partitions.add(new TopicPartition(order.get("topic").asText(), partition.asInt()));
        }
        KafkaConsumer<byte[], byte[]> consumer = consumer(order);
        try {
            consumer.assign(partitions);
            seek(consumer, partitions, order.get("from").asText(), order.get("at").asLong());
            for (TopicPartition partition : partitions) {
                consumer.position(partition);
            }
        } catch (RuntimeException error) {
            consumer.close();
            throw error;
        }
        positioned = consumer;
        positionedBy = order;
    }

    private static void seek(
            KafkaConsumer<byte[], byte[]> consumer, List<TopicPartition> partitions, String from, long at) {
        switch (from) {
            case "earliest" -> consumer.seekToBeginning(partitions);
            case "latest" -> consumer.seekToEnd(partitions);
            case "offset" -> partitions.forEach(partition -> consumer.seek(partition, at));
            case "timestamp" -> seekToTimestamp(consumer, partitions, at);
            default -> throw new IllegalArgumentException("unknown start");
        }
    }

    private static void seekToTimestamp(
            KafkaConsumer<byte[], byte[]> consumer, List<TopicPartition> partitions, long timestampMs) {
        Map<TopicPartition, Long> asked = new HashMap<>();
        partitions.forEach(partition -> asked.put(partition, timestampMs));
        Map<TopicPartition, OffsetAndTimestamp> found = consumer.offsetsForTimes(asked);
        Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
        for (TopicPartition partition : partitions) {
            OffsetAndTimestamp hit = found.get(partition);
            consumer.seek(partition, hit == null ? ends.get(partition) : hit.offset());
        }
    }

    private void read() throws Exception {
        int missing = positionedBy.get("count").asInt();
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs(positionedBy));
        try (KafkaConsumer<byte[], byte[]> consumer = positioned;
                DataOutputStream file = output(positionedBy)) {
            while (missing > 0) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    if (missing > 0) {
                        writeRecord(file, record);
                        missing--;
                    }
                }
                if (System.nanoTime() > deadline) {
                    throw new TimeoutException(missing + " records are missing");
                }
            }
        }
    }

    private void end(JsonNode order, ObjectNode answer) {
        var partition = new TopicPartition(order.get("topic").asText(), order.get("partition").asInt());
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(order)) {
            answer.put("offset", consumer.endOffsets(List.of(partition)).get(partition));
        }
    }

    private static Map<String, Object> settings(JsonNode order) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", order.get("bootstrap").asText());
        return settings;
    }

    private static KafkaConsumer<byte[], byte[]> consumer(JsonNode order) {
        Map<String, Object> settings = settings(order);
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "none");
        settings.put("allow.auto.create.topics", false);
        settings.put("max.poll.records", 10_000);
        // close() waits for the fetch that is under way.
        settings.put("fetch.max.wait.ms", 50);
        settings.put("default.api.timeout.ms", (int) timeoutMs(order));
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static long timeoutMs(JsonNode order) {
        return order.get("timeout_ms").asLong();
    }

    private static DataInputStream input(JsonNode order) throws IOException {
        return new DataInputStream(new BufferedInputStream(new FileInputStream(order.get("file").asText())));
    }

    private static DataOutputStream output(JsonNode order) throws IOException {
        return new DataOutputStream(new BufferedOutputStream(new FileOutputStream(order.get("file").asText())));
    }

    private static ProducerRecord<byte[], byte[]> readRecord(DataInputStream file, String topic)
            throws IOException {
        int partition;
        try {
            partition = file.readInt();
        } catch (EOFException end) {
            return null;
        }
        file.readLong(); // the offset, not known yet
        file.readByte(); // the timestamp type is the topic's business
        long timestampMs = file.readLong();
        byte[] key = readSized(file);
        byte[] value = readSized(file);
        List<Header> headers = new ArrayList<>();
        for (int left = file.readInt(); left > 0; left--) {
            String name = new String(readSized(file), StandardCharsets.UTF_8);
            headers.add(new RecordHeader(name, readSized(file)));
        }
        return new ProducerRecord<>(topic, partition, timestampMs, key, value, headers);
    }

    private static byte[] readSized(DataInputStream file) throws IOException {
        int length = file.readInt();
        if (length == NULL) {
            return null;
        }
        byte[] data = new byte[length];
        file.readFully(data);
        return data;
    }

    private static void writeRecord(DataOutputStream file, ConsumerRecord<byte[], byte[]> record)
            throws IOException {
        file.writeInt(record.partition());
        file.writeLong(record.offset());
        file.writeByte(record.timestampType().id);
        file.writeLong(record.timestamp());
        writeSized(file, record.key());
        writeSized(file, record.value());
        Header[] headers = record.headers().toArray();
        file.writeInt(headers.length);
        for (Header header : headers) {
            writeSized(file, header.key().getBytes(StandardCharsets.UTF_8));
            writeSized(file, header.value());
        }
    }

    private static void writeSized(DataOutputStream file, byte[] data) throws IOException {
        if (data == null) {
            file.writeInt(NULL);
            return;
        }
        file.writeInt(data.length);
        file.write(data);
    }
}
