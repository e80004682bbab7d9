import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.broker.topic.TopicConfigManager;
import org.apache.rocketmq.common.TopicConfig;

/** config/*.json as the release's own managers encode them. */
final class ConfigFiles {
    private final Session session;
    private final ConsumerOffsetManager offsets = new ConsumerOffsetManager();

    ConfigFiles(Session session) {
        this.session = session;
    }

    /** Declare a topic; the store sees it at once, the file when it is written. */
    void topic(String name, int queues) {
        session.topics.put(name, new TopicConfig(name, queues, queues, 6));
    }

    void batchTopic(String name) {
        topic(name, 1);
        Family.makeBatchQueue(session.topics.get(name));
    }

    void offset(String topic, String group, int queue, long offset) {
        offsets.getOffsetTable().computeIfAbsent(topic + "@" + group, key -> new ConcurrentHashMap<>())
            .put(queue, offset);
    }

    /** A group in the middle of the queue, one that starts at 0, and one beyond the end. */
    void groups(String topic, int queues) throws Exception {
        for (int queue = 0; queue < queues; queue++) {
            long min = session.store.getMinOffsetInQueue(topic, queue);
            long max = session.store.getMaxOffsetInQueue(topic, queue);
            offset(topic, "middle", queue, (min + max) / 2);
            offset(topic, "behind", queue, 0);
            offset(topic, "beyond", queue, max + 10);
        }
    }

    void write() throws Exception {
        TopicConfigManager manager = new TopicConfigManager();
        manager.getTopicConfigTable().putAll(session.topics);
        manager.getDataVersion().nextVersion();
        write("topics.json", manager.encode(true));
        write("consumerOffset.json", offsets.encode(true));
    }

    private void write(String name, String json) throws Exception {
        Path directory = Files.createDirectories(session.root.resolve("config"));
        Files.write(directory.resolve(name), json.getBytes(StandardCharsets.UTF_8));
    }
}
