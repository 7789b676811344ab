import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts the words of the topic `lines` into the topic `counts` with Kafka Streams, exactly once: each word
 * of each line makes one record, the word and how often it has come. Runs until it is killed.
 *
 *     WordCount bootstrap state-directory
 */
public final class WordCount {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("state.dir", arguments[1]);
        settings.put("application.id", "word-count");
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", "100");
        // Else only the last count of a word in a transaction is written.
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("replication.factor", "1");
        settings.put("consumer.auto.offset.reset", "earliest");
        settings.put("consumer.session.timeout.ms", "3000");
        settings.put("consumer.heartbeat.interval.ms", "500");
        settings.put("consumer.max.poll.records", "50");
        settings.put("reconnect.backoff.max.ms", "500");

        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines =
            builder.stream("lines", Consumed.with(Serdes.String(), Serdes.String()));
        lines.flatMapValues(line -> List.of(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
            .count()
            .toStream()
            .mapValues(String::valueOf)
            .to("counts", Produced.with(Serdes.String(), Serdes.String()));

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        // A thread that fails ends the process: the test sees it, and its log says why.
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            throw new IllegalStateException(error);
        });
        streams.start();
    }
}
