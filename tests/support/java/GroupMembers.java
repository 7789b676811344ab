import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Members of Apache Kafka's own consumer; tests/e2e/members/__init__.py says what they are told and say. */
public final class GroupMembers {
    private static final AtomicBoolean STOPPING = new AtomicBoolean();

    public static void main(String[] arguments) throws Exception {
        int members = Integer.parseInt(arguments[3]);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < members; i++) {
            int member = i;
            threads.add(new Thread(() -> run(arguments, member)));
        }
        threads.forEach(Thread::start);
        System.in.readAllBytes();
        STOPPING.set(true);
        for (Thread thread : threads) {
            thread.join(60_000);
        }
    }

    private static void run(String[] arguments, int member) {
        try {
            consume(arguments, member);
        } catch (Exception error) {
            say(member, "failed", "\"reason\": \"" + String.valueOf(error).replace('"', '\'') + "\"");
        }
    }

    private static void consume(String[] arguments, int member) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("session.timeout.ms", "20000");
        settings.put("heartbeat.interval.ms", "1000");
        settings.put("max.poll.records", "50");
        settings.put("fetch.max.wait.ms", "100");
        settings.put("reconnect.backoff.max.ms", "500");
        // Else a consumer that reaches no broker forgets its topics, and the leader joins again for that.
        settings.put("metadata.recovery.strategy", "none");
        String assignor = arguments[4].equals("cooperative") ? "CooperativeStickyAssignor" : "RangeAssignor";
        settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor);
        if (!arguments[5].isEmpty()) {
            settings.put("group.instance.id", arguments[5] + "-" + member);
        }
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            consumer.subscribe(List.of(arguments[2]), new Listener(member));
            while (!STOPPING.get()) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                if (!records.isEmpty()) {
                    List<String> read = new ArrayList<>();
                    for (ConsumerRecord<byte[], byte[]> record : records) {
                        read.add("[" + record.partition() + ", " + record.offset() + "]");
                    }
                    say(member, "read", "\"records\": [" + String.join(", ", read) + "]");
                    commit(consumer, member);
                }
            }
        }
    }

    private static void commit(KafkaConsumer<byte[], byte[]> consumer, int member) {
        try {
            consumer.commitSync();
        } catch (CommitFailedException noMember) {
            say(member, "refused", "\"reason\": \"CommitFailedException\"");
        } catch (RebalanceInProgressException between) {
            // The next poll ends the rebalance; what stays here is committed with the next records.
            return;
        }
    }

    private static synchronized void say(int member, String event, String fields) {
        System.out.println(
            "{\"at\": " + System.nanoTime() + ", \"member\": " + member
                + ", \"event\": \"" + event + "\", " + fields + "}");
        System.out.flush();
    }

    private record Listener(int member) implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            tell("assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            tell("revoked", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            tell("lost", partitions);
        }

        private void tell(String event, Collection<TopicPartition> partitions) {
            String list = partitions.stream()
                .map(part -> String.valueOf(part.partition()))
                .collect(Collectors.joining(", "));
            say(member, event, "\"partitions\": [" + list + "]");
        }
    }
}
