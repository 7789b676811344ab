import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Makes one call that concerns the transactional id arguments[2] and prints a line: the milliseconds it
 * took, the class of its error, and the error's text.
 */
public final class TransactionCalls {
    private interface Call {
        void run() throws Exception;
    }

    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        String id = arguments[2];
        if (arguments[1].equals("init")) {
            properties.put("transactional.id", id);
            ByteArraySerializer bytes = new ByteArraySerializer();
            try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties, bytes, bytes)) {
                say(producer::initTransactions);
            }
            return;
        }
        try (Admin admin = Admin.create(properties)) {
            switch (arguments[1]) {
                case "describe" -> say(() -> admin.describeTransactions(Set.of(id)).all().get());
                case "fence" -> say(() -> admin.fenceProducers(Set.of(id)).all().get());
                case "terminate" -> say(() -> admin.forceTerminateTransaction(id).result().get());
                default -> throw new IllegalArgumentException(arguments[1]);
            }
        }
    }

    private static void say(Call call) {
        long begun = System.nanoTime();
        Throwable error = null;
        try {
            call.run();
        } catch (Exception thrown) {
            error = thrown;
            while (error.getCause() != null) {
                error = error.getCause();
            }
        }
        long took = (System.nanoTime() - begun) / 1_000_000;
        String name = error == null ? "none" : error.getClass().getSimpleName();
        System.out.println(took + "\t" + name + "\t" + (error == null ? "" : error.getMessage()));
    }
}
