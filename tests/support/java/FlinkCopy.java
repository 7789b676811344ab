import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExternalizedCheckpointRetention;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Copies the values of the topic `source` to `target` with Apache Flink's exactly-once sink, until it is
 * killed. It begins from a retained checkpoint when it is given one.
 *
 *     FlinkCopy bootstrap POOLING|INCREMENTING directory-of-checkpoints [checkpoint]
 */
public final class FlinkCopy {
    private static final int PARALLELISM = 2;

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, Duration.ofMillis(300));
        configuration.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, arguments[2]);
        configuration.set(
            CheckpointingOptions.EXTERNALIZED_CHECKPOINT_RETENTION,
            ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION);
        // A checkpoint that fails while the endpoint is away is followed by another one.
        configuration.set(CheckpointingOptions.TOLERABLE_FAILURE_NUMBER, 1000);
        configuration.set(RestartStrategyOptions.RESTART_STRATEGY, "fixed-delay");
        configuration.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_ATTEMPTS, 1000);
        configuration.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_DELAY, Duration.ofMillis(200));
        if (arguments.length > 3) {
            configuration.set(StateRecoveryOptions.SAVEPOINT_PATH, arguments[3]);
        }
        StreamExecutionEnvironment environment =
            StreamExecutionEnvironment.createLocalEnvironment(PARALLELISM, configuration);

        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(arguments[0])
            .setTopics("source")
            .setGroupId("flink")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setProperty("max.poll.records", "50")
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(arguments[0])
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("flink-copy")
            .setTransactionNamingStrategy(TransactionNamingStrategy.valueOf(arguments[1]))
            .setProperty("transaction.timeout.ms", "120000")
            .setRecordSerializer(
                KafkaRecordSerializationSchema.<String>builder()
                    .setTopic("target")
                    .setValueSerializationSchema(new SimpleStringSchema())
                    .build())
            .build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "source").sinkTo(sink);
        environment.execute("copy");
    }
}
