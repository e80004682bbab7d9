import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.QueryMessageResult;

/**
 * What the users of a broker have after it was started on a store: messages of each queue and by each key, topics,
 * groups, committed offsets, and what waits for its time. One process asks the brokers of many stores, each without a
 * network and without services that deliver.
 */
final class Survey {
    private static final int MOST_QUEUES = 18;
    private static final long PATIENCE_S = 120; // on a machine that is shared
    private static final long SETTLE_MS = 4_000;
    private static final int MOST = 5_000; // offsets of one queue that are asked for: a damaged maximum has no bound
    private static final int PHYSICAL_OFFSET = 28;
    private static final int ALL = 10_000;
    private static final String SCHEDULE = "SCHEDULE_TOPIC_XXXX";

    private final BrokerController controller;
    private final DefaultMessageStore store;

    Survey(BrokerController controller) {
        this.controller = controller;
        this.store = (DefaultMessageStore) controller.getMessageStore();
    }

    /**
     * For each line "STORE tab KEYS" of `list`; the lines of KEYS are "TOPIC tab KEY". With a third column, the file of
     * "TOPIC tab QUEUE", the answer also has what ClientView says.
     */
    static Map<String, Object> all(Path list) throws Exception {
        List<Object> answers = new ArrayList<>();
        for (String line : Files.readAllLines(list)) {
            String[] paths = line.split("\t");
            answers.add(of(Path.of(paths[0]), Files.readAllLines(Path.of(paths[1])),
                paths.length > 2 ? Path.of(paths[2]) : null));
        }
        return Json.object("surveys", answers);
    }

    private static Object of(Path root, List<String> keys, Path queues) throws InterruptedException {
        Object[] answer = new Object[1];
        CountDownLatch done = new CountDownLatch(1);
        Thread thread = new Thread(() -> {
            try {
                answer[0] = answer(root, keys, queues);
            } catch (Throwable failure) {
                failure.printStackTrace();
                answer[0] = Json.object("refuses", String.valueOf(failure));
            }
            done.countDown();
        });
        thread.setDaemon(true);
        thread.start();
        if (done.await(PATIENCE_S, TimeUnit.SECONDS)) {
            return answer[0];
        }
        StackTraceElement[] stack = thread.getStackTrace();
        return Json.object("refuses", "hangs in " + (stack.length == 0 ? "?" : stack[Math.min(2, stack.length - 1)]));
    }

    private static Object answer(Path root, List<String> keys, Path queues) throws Exception {
        BrokerController controller = WholeBroker.controller(root, null);
        if (!controller.initialize()) {
            return Json.object("refuses", "initialize returns false");
        }
        Survey survey = new Survey(controller);
        Map<Integer, Long> delays = new TreeMap<>(Family.delayOffsets(controller));
        Family.silence(survey.store);
        survey.store.start();
        survey.settle();
        Map<String, Object> facts = Json.object("refuses", null, "queues", survey.queues(root),
            "keys", survey.keys(keys), "topics", survey.topics(), "groups", survey.groups(),
            "committed", survey.committed(), "delays", survey.delays(delays), "timers", Family.timers(controller));
        if (queues != null) {
            facts.put("clients", new ClientView(controller).answer(queues, keys, survey.committed()));
        }
        Family.release(controller);
        Thread thread = new Thread(survey.store::shutdown); // 4.x waits for seconds while it stops
        thread.setDaemon(true);
        thread.start();
        return facts;
    }

    private void settle() throws InterruptedException {
        long deadline = System.currentTimeMillis() + SETTLE_MS;
        while (store.dispatchBehindBytes() > 0 && System.currentTimeMillis() < deadline) {
            Thread.sleep(5);
        }
    }

    /** Maximum and messages of every queue that is not empty, and has a directory or is one of a configured topic. */
    private Map<String, Object> queues(Path root) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (TopicConfig topic : controller.getTopicConfigManager().getTopicConfigTable().values()) {
            for (int queue = 0; queue < Math.min(topic.getReadQueueNums(), MOST_QUEUES); queue++) {
                add(topic.getTopicName(), queue, found);
            }
        }
        for (String base : new String[] {"consumequeue", "batchconsumequeue"}) {
            for (Path topic : LogReader.sorted(root.resolve(base))) {
                for (Path queue : Files.isDirectory(topic) ? LogReader.sorted(topic) : List.<Path>of()) {
                    if (queue.getFileName().toString().matches("\\d{1,9}")) {
                        add(topic.getFileName().toString(), Integer.parseInt(queue.getFileName().toString()), found);
                    }
                }
            }
        }
        return found;
    }

    private void add(String topic, int queue, Map<String, Object> found) throws Exception {
        long max = store.getMaxOffsetInQueue(topic, queue);
        if (max > 0) {
            found.put(topic + "/" + queue, Json.object("max_offset", max, "messages", messages(topic, queue, max)));
        }
    }

    /** [queue offset, physical offset, CRC-32 of the whole message] of what a consumer gets. */
    private List<Object> messages(String topic, int queue, long max) throws Exception {
        List<Object> found = new ArrayList<>();
        long offset = store.getMinOffsetInQueue(topic, queue);
        for (int pulls = 0; offset < max && pulls < MOST; pulls++) {
            GetMessageResult result = null;
            try {
                result = store.getMessage("survey", topic, queue, offset, 1, null);
            } catch (NullPointerException inside) { // 5.5.0 at the inner offsets of a batch whose unit is in RocksDB
                offset++;
                continue;
            }
            if (result == null) {
                return found;
            }
            if (result.getStatus() == GetMessageStatus.FOUND) {
                ByteBuffer message = result.getMessageBufferList().get(0);
                found.add(Arrays.asList(Family.queueOffset(result), physicalOffset(message), crc(message)));
            }
            long next = result.getNextBeginOffset();
            result.release();
            offset = Math.max(offset + 1, next); // never stand still, whatever the store answers
        }
        return found;
    }

    /** -1 of what is too short to be a message: the store reads as many bytes as a unit says. */
    private static long physicalOffset(ByteBuffer message) {
        return message.limit() < PHYSICAL_OFFSET + Long.BYTES ? -1 : message.getLong(PHYSICAL_OFFSET);
    }

    private static long crc(ByteBuffer message) {
        CRC32 crc = new CRC32();
        crc.update(message.duplicate());
        return crc.getValue();
    }

    private Map<String, Object> keys(List<String> keys) {
        long now = System.currentTimeMillis();
        Map<String, Object> found = new TreeMap<>();
        for (String line : keys) {
            String[] key = line.split("\t");
            TreeSet<Long> offsets = new TreeSet<>();
            QueryMessageResult result = store.queryMessage(key[0], key[1], ALL, 0, now);
            for (ByteBuffer message : result.getMessageBufferList()) {
                offsets.add(physicalOffset(message));
            }
            result.release();
            found.put(line, offsets);
        }
        return found;
    }

    Map<String, Object> topics() {
        Map<String, Object> found = new TreeMap<>();
        for (TopicConfig topic : controller.getTopicConfigManager().getTopicConfigTable().values()) {
            found.put(topic.getTopicName(), topic.toString());
        }
        return found;
    }

    Map<String, Object> groups() {
        Map<String, Object> found = new TreeMap<>();
        controller.getSubscriptionGroupManager().getSubscriptionGroupTable()
            .forEach((name, group) -> found.put(name, group.toString()));
        return found;
    }

    Map<String, Object> committed() throws ReflectiveOperationException {
        Map<String, Object> found = new TreeMap<>();
        ConsumerOffsetManager manager = controller.getConsumerOffsetManager();
        manager.getOffsetTable().forEach(
            (name, offsets) -> offsets.forEach((queue, offset) -> found.put(name + "/" + queue, offset)));
        try {
            ((Map<?, ?>) Reflection.inherited(manager, "lmqOffsetTable")).forEach(
                (name, offset) -> found.put(String.valueOf(name), offset));
        } catch (NoSuchFieldException none) {
            return found;
        }
        return found;
    }

    /** By level that has messages: the queue offset from which they would be delivered. */
    private Map<String, Object> delays(Map<Integer, Long> offsets) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (int level = 1; level <= 18; level++) {
            if (store.getMaxOffsetInQueue(SCHEDULE, level - 1) > 0) {
                long min = Math.max(0, store.getMinOffsetInQueue(SCHEDULE, level - 1));
                found.put(String.valueOf(level), Math.max(min, offsets.getOrDefault(level, 0L)));
            }
        }
        return found;
    }
}
