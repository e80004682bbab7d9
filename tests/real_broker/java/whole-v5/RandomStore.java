import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.ConfigManager;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.store.DefaultMessageStore;

/**
 * A broker without a network that goes on with the store at a place: random topics, groups, committed offsets and
 * messages, as a seed says; then everything that it answers about them.
 */
final class RandomStore {
    private static final long SETTLE_MS = 60_000;
    private static final int GROUPS = 6;

    private final BrokerController controller;
    private final DefaultMessageStore store;
    private final Random random;
    private final RandomMessages messages;

    private RandomStore(BrokerController controller, long seed) {
        this.controller = controller;
        this.store = (DefaultMessageStore) controller.getMessageStore();
        this.random = new Random(seed);
        this.messages = new RandomMessages(store, random);
    }

    /** `numbers`: the seed, how many messages, and whether more are written until the process is killed. */
    static void run(Path root, Path facts, String... numbers) throws Exception {
        BrokerController controller = WholeBroker.controller(root, null);
        if (!controller.initialize()) {
            throw new IllegalStateException("the broker cannot be initialized on " + root);
        }
        RandomStore written = new RandomStore(controller, Long.parseLong(numbers[0]));
        Family.silence(written.store);
        written.store.start();
        written.write(Integer.parseInt(numbers[1]));
        written.settle();
        if (Boolean.parseBoolean(numbers[2])) {
            written.writeUntilKilled();
        }
        Survey survey = new Survey(controller);
        StoreFacts answers = new StoreFacts(written.store, written.random);
        Map<String, Integer> queues = messageQueues(root, written.messages);
        Files.write(facts, Json.bytes(Json.object(
            "queues", answers.queues(queues), "keys", answers.keys(root),
            "topics", survey.topics(), "groups", survey.groups(), "committed", written.committed(queues))));
        written.stop();
    }

    /** The queues that the log leads to; also those of an earlier run. */
    private static Map<String, Integer> messageQueues(Path root, RandomMessages messages) throws Exception {
        Map<String, Integer> queues = messages.queues();
        for (Map<String, Object> record : LogReader.records(root)) {
            queues.merge((String) record.get("topic"), (int) record.get("queue_id") + 1, Math::max);
        }
        return queues;
    }

    private void write(int count) throws Exception {
        if (count == 0) {
            return;
        }
        for (Map.Entry<String, Integer> topic : messages.topics().entrySet()) {
            TopicConfig config = new TopicConfig(topic.getKey(), topic.getValue(), topic.getValue(), 6);
            if (topic.getKey().equals(RandomMessages.BATCHES)) {
                config.setAttributes(Map.of("+queue.type", "BatchCQ"));
            }
            controller.getTopicConfigManager().updateTopicConfig(config);
        }
        for (int number = 0; number < count; number++) {
            messages.put();
        }
        settle();
        for (int number = 0; number < GROUPS; number++) {
            group("group-" + number + (number % 3 == 0 ? "-" + "x".repeat(random.nextInt(60)) : ""));
        }
        controller.getConsumerOffsetManager().persist();
    }

    private void group(String name) {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(name);
        config.setRetryMaxTimes(random.nextInt(30));
        config.setConsumeEnable(random.nextInt(5) > 0);
        controller.getSubscriptionGroupManager().updateSubscriptionGroupConfig(config);
        for (Map.Entry<String, Integer> topic : messages.queues().entrySet()) {
            for (int queue = 0; queue < topic.getValue() && random.nextInt(3) > 0; queue++) {
                if (!topic.getKey().equals("SCHEDULE_TOPIC_XXXX")) {
                    controller.getConsumerOffsetManager().commitOffset("random", name, topic.getKey(), queue, random.nextInt(200));
                }
            }
        }
    }

    /** As consumers are told: version 2 of the configuration keeps offsets of light queues only in its database. */
    private Map<String, Object> committed(Map<String, Integer> queues) {
        Map<String, Object> found = new TreeMap<>();
        for (String group : controller.getSubscriptionGroupManager().getSubscriptionGroupTable().keySet()) {
            queues.forEach((topic, count) -> {
                for (int queue = 0; queue < count; queue++) {
                    long offset = controller.getConsumerOffsetManager().queryOffset(group, topic, queue);
                    found.put(topic + "@" + group + "/" + queue, offset);
                }
            });
        }
        return found;
    }

    private void writeUntilKilled() throws Exception {
        System.out.println("harness: ready");
        System.out.flush();
        while (true) {
            messages.put();
            Thread.sleep(1);
        }
    }

    private void settle() throws InterruptedException {
        long deadline = System.currentTimeMillis() + SETTLE_MS;
        while (store.dispatchBehindBytes() > 0) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("dispatch is still behind by " + store.dispatchBehindBytes());
            }
            Thread.sleep(5);
        }
    }

    /** What a controller does that was started. */
    private void stop() throws Exception {
        store.shutdown();
        for (ConfigManager manager : List.of(controller.getConsumerOffsetManager(),
            controller.getTopicConfigManager(), controller.getSubscriptionGroupManager())) {
            manager.persist();
            manager.stop();
        }
        for (String name : new String[] {"configStorage", "rocksDBConfigStorage"}) {
            try {
                Object storage = Reflection.inherited(controller, name);
                if (storage != null) {
                    storage.getClass().getMethod("shutdown").invoke(storage);
                }
            } catch (NoSuchFieldException none) {
                continue;
            }
        }
    }
}
