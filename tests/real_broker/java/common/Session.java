import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.broker.topic.TopicConfigManager;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** One run of the real DefaultMessageStore over a store directory. */
final class Session {
    private static final long SETTLE_MS = 60_000;

    final Path root;
    final ConcurrentMap<String, TopicConfig> topics;
    final DefaultMessageStore store;

    Session(Path root) throws Exception {
        this.root = root;
        this.topics = topicsOf(root);
        this.store = Family.open(config(root), topics);
    }

    /** Load and recover, as a broker does before it starts. */
    static Session load(Path root) throws Exception {
        Session session = new Session(root);
        if (!session.store.load()) {
            throw new IllegalStateException("the store refuses to load " + root);
        }
        return session;
    }

    static Session start(Path root) throws Exception {
        Session session = load(root);
        session.store.start();
        session.settle();
        return session;
    }

    AppendMessageResult put(Draft draft) {
        return appended(Family.put(store, draft.message));
    }

    AppendMessageResult put(MessageExtBatch batch) {
        return appended(store.putMessages(batch));
    }

    /** Wait until every message of the log is in its queues and in the index. */
    void settle() throws InterruptedException {
        long deadline = System.currentTimeMillis() + SETTLE_MS;
        while (store.dispatchBehindBytes() > 0) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("dispatch is still behind by " + store.dispatchBehindBytes());
            }
            Thread.sleep(5);
        }
    }

    void stop() throws InterruptedException {
        settle();
        store.shutdown();
    }

    private static AppendMessageResult appended(PutMessageResult result) {
        if (!result.isOk()) {
            throw new IllegalStateException("the store refuses the message: " + result);
        }
        return result.getAppendMessageResult();
    }

    /** What the parent has set. */
    static Properties settings() throws IOException {
        Properties settings = new Properties();
        try (InputStream file = Files.newInputStream(Path.of(System.getProperty("harness.settings")))) {
            settings.load(file);
        }
        return settings;
    }

    private static MessageStoreConfig config(Path root) throws Exception {
        Properties settings = settings();
        settings.setProperty("storePathRootDir", root.toString());
        settings.setProperty("storePathCommitLog", root.resolve("commitlog").toString());
        MessageStoreConfig config = new MessageStoreConfig();
        MixAll.properties2Object(settings, config);
        return config;
    }

    static ConcurrentMap<String, TopicConfig> topicsOf(Path root) throws Exception {
        TopicConfigManager manager = new TopicConfigManager();
        Path file = root.resolve("config/topics.json");
        if (Files.exists(file)) {
            manager.decode(new String(Files.readAllBytes(file), StandardCharsets.UTF_8));
        }
        return manager.getTopicConfigTable();
    }
}
