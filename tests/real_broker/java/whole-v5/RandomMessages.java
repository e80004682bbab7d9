import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.rocketmq.common.TopicFilterType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;

/** Random messages of every sort, as clients and the services of a broker give them to its store. */
final class RandomMessages {
    static final String BATCHES = "batches";
    private static final String[] TAGS = {"Aa", "BB", null, "paid", "支付"};
    private static final int[] TRANSACTIONS = {0x4, 0x8, 0xc};

    private final DefaultMessageStore store;
    private final Random random;
    private final Text text;
    private final Map<String, Integer> topics = new TreeMap<>();
    private final List<String> names;
    private int number;

    RandomMessages(DefaultMessageStore store, Random random) {
        this.store = store;
        this.random = random;
        this.text = new Text(random.nextLong());
        for (int topic = 0; topic < 3 + random.nextInt(4); topic++) {
            topics.put("topic-" + topic + "x".repeat(random.nextInt(topic % 2 == 0 ? 90 : 3)), 1 + random.nextInt(4));
        }
        topics.put("%RETRY%group-1", 1);
        topics.put("%RETRY%group-1_topic-0", 1); // of a POP consumer
        topics.put("%DLQ%group-1", 1);
        names = new ArrayList<>(topics.keySet());
        if (Features.has("batch-queue")) {
            topics.put(BATCHES, 1);
        }
    }

    /** Topics with their number of queues. */
    Map<String, Integer> topics() {
        return topics;
    }

    /** The same with those of light queues and of delays. */
    Map<String, Integer> queues() {
        Map<String, Integer> all = new TreeMap<>(topics);
        for (int light = 0; light < 5; light++) {
            all.put("%LMQ%" + light, 1);
        }
        all.put("SCHEDULE_TOPIC_XXXX", 18);
        return all;
    }

    void put() {
        int sort = random.nextInt(20);
        if (sort == 0) {
            require(store.putMessages(batch()));
        } else if (sort == 1 && topics.containsKey(BATCHES)) {
            require(store.putMessage(innerBatch()));
        } else {
            require(store.putMessage(message()));
        }
    }

    private MessageExtBrokerInner message() {
        String topic = names.get(random.nextInt(names.size()));
        Draft draft = Draft.to(topic, random.nextInt(topics.get(topic))).body(body()).tags(tag()).keys(keys())
            .flag(random.nextInt(3)).property("WAIT", "true");
        if (random.nextInt(8) > 0) {
            draft.unique(number++);
        }
        if (random.nextInt(10) == 0) {
            draft.property("DELAY", String.valueOf(1 + random.nextInt(18)));
        } else if (random.nextInt(3) == 0) {
            draft.sysFlag(TRANSACTIONS[random.nextInt(TRANSACTIONS.length)]);
        } else if (random.nextInt(3) == 0 && !topic.startsWith("%")) {
            List<String> light = new ArrayList<>();
            for (int queue = 0; queue < 5; queue++) {
                if (random.nextInt(3) == 0) {
                    light.add("%LMQ%" + queue);
                }
            }
            draft.property("INNER_MULTI_DISPATCH", String.join(",", light));
        }
        return inner(draft);
    }

    private MessageExtBrokerInner innerBatch() {
        List<Message> parts = parts();
        return inner(Draft.to(BATCHES, 0).body(MessageDecoder.encodeMessages(parts)).unique(number++).tags("Aa")
            .sysFlag(0x40 | 0x80).property("INNER_NUM", String.valueOf(parts.size())));
    }

    private static MessageExtBrokerInner inner(Draft draft) {
        MessageExtBrokerInner inner = (MessageExtBrokerInner) draft.message;
        inner.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(TopicFilterType.SINGLE_TAG, inner.getTags()));
        inner.setPropertiesString(MessageDecoder.messageProperties2String(inner.getProperties()));
        return inner;
    }

    private MessageExtBatch batch() {
        String topic = names.get(random.nextInt(names.size()));
        MessageExtBatch batch = new MessageExtBatch();
        batch.setTopic(topic);
        batch.setQueueId(random.nextInt(topics.get(topic)));
        batch.setBornTimestamp(System.currentTimeMillis() - 3);
        batch.setBornHost(Draft.PRODUCER);
        batch.setStoreHost(Draft.BROKER);
        batch.setBody(MessageDecoder.encodeMessages(parts()));
        MessageAccessor.putProperty(batch, "UNIQ_KEY", Draft.uniqueKey(number++));
        MessageAccessor.putProperty(batch, "WAIT", "true");
        return batch;
    }

    private List<Message> parts() {
        List<Message> parts = new ArrayList<>();
        for (int part = 0; part < 1 + random.nextInt(7); part++) {
            Message message = new Message("any", tag() == null ? "" : "BB", "batch-" + number, text.noise(1 + random.nextInt(60)));
            MessageAccessor.putProperty(message, "UNIQ_KEY", Draft.uniqueKey(number++));
            parts.add(message);
        }
        return parts;
    }

    private byte[] body() {
        return text.noise(1 + random.nextInt(random.nextInt(30) == 0 ? 9_000 : 700));
    }

    private String tag() {
        return TAGS[random.nextInt(TAGS.length)];
    }

    private String keys() {
        List<String> keys = new ArrayList<>();
        for (int key = 0; key < random.nextInt(4); key++) {
            String[] kinds = {"key-" + number, "often-" + random.nextInt(9), "schlüssel-" + random.nextInt(50), "Aa", "a@b"};
            keys.add(kinds[random.nextInt(kinds.length)]);
        }
        return keys.isEmpty() ? null : String.join(" ", keys);
    }

    private static void require(PutMessageResult result) {
        if (!result.isOk()) {
            throw new IllegalStateException("the store refuses the message: " + result.getPutMessageStatus());
        }
    }
}
