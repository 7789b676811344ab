import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/**
 * Calls the Java admin client about topic arguments[1], which has one partition with three records, and
 * prints a line for each call: its name, and what it gave or the error's class.
 */
public final class AdminCalls {
    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("default.api.timeout.ms", "30000");
        String topic = arguments[1];
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        TopicPartition first = new TopicPartition(topic, 0);
        try (Admin admin = Admin.create(properties)) {
            say("create partitions", () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get());
            say("partitions", () -> admin.describeTopics(Set.of(topic)).allTopicNames().get().get(topic).partitions().size());
            say("create fewer", () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).all().get());
            say("change configs", () -> admin.incrementalAlterConfigs(Map.of(resource, changes())).all().get());
            say("retention.ms", () -> config(admin, resource, "retention.ms"));
            say("cleanup.policy", () -> config(admin, resource, "cleanup.policy"));
            say("producers", () -> admin.describeProducers(Set.of(first)).partitionResult(first).get().activeProducers().size());
            say("delete records", () -> admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(2))).lowWatermarks().get(first).get().lowWatermark());
            say("log dirs", () -> admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).values().stream()
                .allMatch(dir -> dir.error() == null && dir.totalBytes().getAsLong() > dir.usableBytes().getAsLong()
                    && dir.replicaInfos().get(first).size() > 0));
            say("elect leaders", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(first)).all().get());
            say("reassign", () -> admin.alterPartitionReassignments(
                Map.of(first, Optional.of(new NewPartitionReassignment(List.of(1))))).all().get());
            say("cancel", () -> admin.alterPartitionReassignments(Map.of(first, Optional.empty())).all().get());
            say("reassignments", () -> admin.listPartitionReassignments().reassignments().get());
            say("config resources", () -> admin.listConfigResources(
                Set.of(ConfigResource.Type.TOPIC), new org.apache.kafka.clients.admin.ListConfigResourcesOptions())
                .all().get().contains(resource));
        }
    }

    private static Collection<AlterConfigOp> changes() {
        return List.of(
            new AlterConfigOp(new ConfigEntry("retention.ms", "86400000"), AlterConfigOp.OpType.SET),
            new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND));
    }

    private static String config(Admin admin, ConfigResource resource, String name) throws Exception {
        return admin.describeConfigs(Set.of(resource)).all().get().get(resource).get(name).value();
    }

    private static void say(String name, Callable<Object> call) {
        String answer;
        try {
            answer = String.valueOf(call.call());
        } catch (ExecutionException error) {
            answer = error.getCause().getClass().getSimpleName();
        } catch (Exception error) {
            answer = error.toString();
        }
        System.out.println(name + "\t" + answer);
    }
}
