import com.alibaba.fastjson.JSONArray;
import java.io.InputStream;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Stream;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.logging.org.slf4j.LoggerFactory;
import org.apache.rocketmq.remoting.Configuration;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.plugin.MessageStorePluginContext;
import org.apache.rocketmq.store.stats.BrokerStatsManager;
import org.apache.rocketmq.tieredstore.TieredMessageStore;

/** A store with its tier in files (PosixFileSegment), as a broker with messageStorePlugIn has it. */
final class Tiered {
    private static final String TOPIC = "history";
    private static final int QUEUES = 2;
    private static final long UPLOAD_MS = 240_000;
    private static final int KEYS_OF_MESSAGE = 3;
    private static final int INDEX_HEADER = 28;
    private static final int TAGS = 3;
    private static final int KEYS = 240; // of those that the messages have, one each
    private static final int PULLED = 32; // what a push consumer asks for

    private final Session session;
    private final TieredMessageStore store;
    private final Path tree;

    private Tiered(Path root) throws Exception {
        Properties settings = new Properties();
        try (InputStream file = Files.newInputStream(Path.of(System.getProperty("harness.settings")))) {
            settings.load(file);
        }
        settings.setProperty("storePathRootDir", root.toString()); // where the metadata of the tier is
        tree = Path.of(settings.getProperty("tieredStoreFilePath"));
        session = new Session(root);
        session.topics.putIfAbsent(TOPIC, new TopicConfig(TOPIC, QUEUES, QUEUES));
        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerName(settings.getProperty("brokerName"));
        broker.setBrokerClusterName(settings.getProperty("brokerClusterName"));
        Configuration configuration = new Configuration(LoggerFactory.getLogger("tiered"));
        configuration.registerConfig(settings);
        store = new TieredMessageStore(new MessageStorePluginContext(session.store.getMessageStoreConfig(),
            new BrokerStatsManager("harness", false), (topic, queue, offset, tags, time, bits, properties) -> { }, broker,
            configuration), session.store);
        if (!store.load()) {
            throw new IllegalStateException("the store refuses to load " + root);
        }
        store.start();
        session.settle();
    }

    /** Put messages into queues in turn, wait until all are in the tier, and stop; or end as a kill ends a broker. */
    static void write(Path root, String count, boolean isKilled) throws Exception {
        Tiered tiered = new Tiered(root);
        new ConfigFiles(tiered.session).write();
        for (int number = 0; number < Integer.parseInt(count); number++) {
            tiered.session.put(Draft.to(TOPIC, number % QUEUES).body("history " + number + " " + "x".repeat(number % 60))
                .tags("Tag" + number % TAGS).keys("k" + number + " all").unique(number));
        }
        long units = Long.parseLong(count);
        long deadline = System.currentTimeMillis() + UPLOAD_MS;
        while (tiered.units() < units) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("only " + tiered.units() + " of " + units + " are in the tier");
            }
            Thread.sleep(200);
        }
        while (isKilled && indexed(root) < units * KEYS_OF_MESSAGE) {
            Thread.sleep(100);
        }
        if (isKilled) {
            Runtime.getRuntime().halt(0);
        }
        tiered.stop();
    }

    /** How many items the index has that is still written. */
    private static int indexed(Path root) throws Exception {
        try (Stream<Path> files = Files.list(root.resolve("tiered_index_file"))) {
            Path file = files.filter(Files::isRegularFile).findFirst().orElseThrow();
            try (InputStream bytes = Files.newInputStream(file)) {
                return ByteBuffer.wrap(bytes.readNBytes(INDEX_HEADER)).getInt(INDEX_HEADER - Integer.BYTES);
            }
        }
    }

    /** What a consumer gets of each queue from its first offset on: status, offset and digest of each message. */
    static Object read(Path root, String file) throws Exception {
        Tiered tiered = new Tiered(root);
        List<Object> queues = new ArrayList<>();
        for (int queue = 0; queue < QUEUES; queue++) {
            long min = tiered.store.getMinOffsetInQueue(TOPIC, queue);
            long max = tiered.store.getMaxOffsetInQueue(TOPIC, queue);
            List<Object> messages = new ArrayList<>();
            List<Object> pulls = new ArrayList<>();
            String status = tiered.pull(queue, min, max, null, messages, pulls);
            Map<String, Object> tagged = new LinkedHashMap<>();
            for (int tag = 0; tag < TAGS; tag++) {
                List<Object> matching = new ArrayList<>();
                MessageFilter filter = Questions.filter(new JSONArray(Arrays.asList("Tag" + tag)));
                tiered.pull(queue, min, max, filter, matching, pulls);
                tagged.put("Tag" + tag, matching);
            }
            queues.add(Json.object("queue_id", queue, "min_offset", min, "max_offset", max, "status", status,
                "messages", messages, "tagged", tagged, "pulls", pulls));
        }
        Map<String, Object> keys = tiered.found();
        tiered.stop();
        return Json.object("queues", queues, "keys", keys);
    }

    /** Add the messages that pulls with a filter return, and of each pull its answer; the last status. */
    private String pull(int queue, long min, long max, MessageFilter filter, List<Object> messages, List<Object> pulls)
        throws Exception {
        String status = "";
        long offset = min;
        while (offset < max) {
            GetMessageResult result = store.getMessageAsync("harness", TOPIC, queue, offset, PULLED, filter).get();
            status = result.getStatus().name();
            List<Long> offsets = result.getMessageQueueOffset();
            List<ByteBuffer> buffers = result.getMessageBufferList();
            for (int index = 0; index < buffers.size(); index++) {
                messages.add(Arrays.asList(offsets.get(index), digest(buffers.get(index))));
            }
            long next = result.getNextBeginOffset();
            pulls.add(Arrays.asList(offset, status, next, result.getMinOffset(), result.getMaxOffset(), buffers.size()));
            result.release();
            if (next <= offset) {
                break;
            }
            offset = next;
        }
        return status;
    }

    /** What is found by the key that each message has alone: digests; nothing where the query fails. */
    private Map<String, Object> found() {
        Map<String, Object> keys = new LinkedHashMap<>();
        for (int number = 0; number < KEYS; number++) {
            List<String> digests = new ArrayList<>();
            try {
                store.queryMessage(TOPIC, "k" + number, PULLED, 0, Long.MAX_VALUE).getMessageBufferList()
                    .forEach(message -> digests.add(digest(message)));
            } catch (RuntimeException error) {
                digests.clear();
            }
            keys.put("k" + number, digests);
        }
        return keys;
    }

    private void stop() {
        store.shutdown();
    }

    private long units() throws Exception {
        if (!Files.exists(tree)) {
            return 0;
        }
        try (Stream<Path> files = Files.walk(tree)) {
            return files.filter(file -> file.getParent().endsWith("CONSUME_QUEUE") && Files.isRegularFile(file))
                .mapToLong(file -> file.toFile().length() / 20).sum();
        }
    }

    private static String digest(ByteBuffer message) {
        byte[] bytes = new byte[message.remaining()];
        message.duplicate().get(bytes);
        Arrays.fill(bytes, 28, 36, (byte) 0);
        try {
            return new BigInteger(1, MessageDigest.getInstance("SHA-256").digest(bytes)).toString(16);
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }
}
