import com.alibaba.fastjson.JSONArray;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.QueryMessageResult;

/** What clients get, entry by entry: the answer to a pull at each queue offset, to a query by each key, each due time. */
final class ClientView {
    private static final int MOST = 5_000; // offsets of one queue that are asked for: a damaged maximum has no bound
    private static final int PHYSICAL_OFFSET = 28;
    private static final int SMALLEST = 91;
    private static final int INNER_BATCH = 0x80;
    private static final int ALL = 10_000;
    private static final String SCHEDULE = "SCHEDULE_TOPIC_XXXX";

    private final BrokerController controller;
    private final DefaultMessageStore store;

    ClientView(BrokerController controller) {
        this.controller = controller;
        this.store = (DefaultMessageStore) controller.getMessageStore();
    }

    /** The lines of `asked` are "TOPIC tab QUEUE", those of `keys` "TOPIC tab KEY"; `committed` is by "TOPIC@GROUP/QUEUE". */
    Map<String, Object> answer(Path asked, List<String> keys, Map<String, Object> committed) throws Exception {
        Map<String, Object> queues = new TreeMap<>();
        for (String line : Files.readAllLines(asked)) {
            String[] words = line.split("\t");
            queues.put(words[0] + "/" + words[1], queue(words[0], Integer.parseInt(words[1])));
        }
        return Json.object("queues", queues, "keys", keys(keys), "groups", groups(committed),
            "filters", filters());
    }

    private Map<String, Object> queue(String topic, int queue) throws Exception {
        long max = store.getMaxOffsetInQueue(topic, queue);
        long min = Math.max(0, store.getMinOffsetInQueue(topic, queue));
        List<Object> pulls = new ArrayList<>();
        List<Object> units = new ArrayList<>();
        for (long offset = min; offset < max && offset - min < MOST; offset++) {
            pulls.add(pull(topic, queue, offset));
            long[] unit = topic.equals(SCHEDULE) ? Family.unit(store, topic, queue, offset) : null;
            if (unit != null) {
                units.add(Arrays.asList(offset, unit[0], unit[1]));
            }
        }
        return Json.object("min_offset", min, "max_offset", max, "pulls", pulls, "units", units);
    }

    /**
     * [asked, queue offset, physical offset, size, messages in it, 0 where it is not whole, the tag of which consumers
     * get it, or null], or [asked, next, status].
     */
    private List<Object> pull(String topic, int queue, long offset) throws Exception {
        GetMessageResult result;
        try {
            result = store.getMessage("survey", topic, queue, offset, 1, null);
        } catch (NullPointerException inside) { // 5.5.0 at the inner offsets of a batch whose unit is in RocksDB
            return Arrays.asList(offset, offset + 1, "NullPointerException");
        }
        if (result == null) {
            return Arrays.asList(offset, offset + 1, "null");
        }
        try {
            if (result.getStatus() != GetMessageStatus.FOUND) {
                return Arrays.asList(offset, result.getNextBeginOffset(), result.getStatus().name());
            }
            ByteBuffer message = result.getMessageBufferList().get(0);
            return Arrays.asList(offset, Family.queueOffset(result), physicalOffset(message), message.limit(),
                messages(message), tag(topic, queue, offset, message));
        } finally {
            result.release();
        }
    }

    /** The tag of a message, if a pull with it gives the message. */
    private String tag(String topic, int queue, long offset, ByteBuffer message) throws Exception {
        MessageExt decoded = decoded(message);
        String tag = decoded == null ? null : decoded.getTags();
        if (tag == null) {
            return null;
        }
        GetMessageResult result = store.getMessage("survey", topic, queue, offset, 1,
            Questions.filter(new JSONArray(Arrays.asList(tag))));
        try {
            boolean isGiven = result.getStatus() == GetMessageStatus.FOUND
                && physicalOffset(result.getMessageBufferList().get(0)) == physicalOffset(message);
            return isGiven ? tag : null;
        } finally {
            result.release();
        }
    }

    /** The queue offset from which each group goes on that pulls from its committed offset. */
    private Map<String, Object> groups(Map<String, Object> committed) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (Map.Entry<String, Object> each : committed.entrySet()) {
            int at = each.getKey().indexOf('@');
            int slash = each.getKey().lastIndexOf('/');
            String topic = each.getKey().substring(0, at);
            int queue = slash > at ? Integer.parseInt(each.getKey().substring(slash + 1)) : 0; // a light queue has none
            found.put(each.getKey(), next(topic, queue, ((Number) each.getValue()).longValue()));
        }
        return found;
    }

    /** The same offset within the queue; elsewhere what the broker answers to a pull. */
    private long next(String topic, int queue, long committed) throws Exception {
        boolean isInside = committed >= Math.max(0, store.getMinOffsetInQueue(topic, queue))
            && committed <= store.getMaxOffsetInQueue(topic, queue) && committed > 0;
        return isInside ? committed : (Long) pull(topic, queue, committed).get(1);
    }

    /** Physical offsets of the whole messages that a client accepts as those with the key. */
    private Map<String, Object> keys(List<String> keys) {
        long now = System.currentTimeMillis();
        Map<String, Object> found = new TreeMap<>();
        for (String line : keys) {
            String[] key = line.split("\t");
            TreeSet<Long> offsets = new TreeSet<>();
            QueryMessageResult result = store.queryMessage(key[0], key[1], ALL, 0, now);
            for (ByteBuffer message : result.getMessageBufferList()) {
                MessageExt decoded = decoded(message);
                if (decoded != null && hasKey(decoded, key[1])) {
                    offsets.add(physicalOffset(message));
                }
            }
            result.release();
            found.put(line, offsets);
        }
        return found;
    }

    private static boolean hasKey(MessageExt message, String key) {
        String keys = message.getProperty("KEYS");
        return key.equals(message.getProperty("UNIQ_KEY"))
            || keys != null && Arrays.asList(keys.split(" ")).contains(key);
    }

    /** The message, unless its frame or its body is damaged: a client checks both. */
    private static MessageExt decoded(ByteBuffer message) {
        if (message.limit() < SMALLEST || message.getInt(0) != message.limit()) {
            return null;
        }
        try {
            MessageExt stored = MessageDecoder.decode(message.duplicate(), true, false);
            if (stored == null || stored.getBody() != null && stored.getBody().length > 0
                && stored.getBodyCRC() != UtilAll.crc32(stored.getBody())) {
                return null;
            }
            return MessageDecoder.decode(message.duplicate(), true, true) == null ? null : stored;
        } catch (RuntimeException damaged) {
            return null;
        }
    }

    private static long physicalOffset(ByteBuffer message) {
        return message.limit() < PHYSICAL_OFFSET + Long.BYTES ? -1 : message.getLong(PHYSICAL_OFFSET);
    }

    /** One, the number in a batch that is stored as one record, or 0 of what is damaged. */
    private static int messages(ByteBuffer message) {
        MessageExt decoded = decoded(message);
        if (decoded == null) {
            return 0;
        }
        String number = (decoded.getSysFlag() & INNER_BATCH) == 0 ? null : decoded.getProperty("INNER_NUM");
        return number == null ? 1 : Integer.parseInt(number);
    }

    /** "TOPIC@GROUP" of each SQL filter that the broker knows. */
    private List<String> filters() {
        TreeSet<String> found = new TreeSet<>();
        controller.getConsumerFilterManager().getFilterDataByTopic().forEach((topic, groups) ->
            groups.getGroupFilterData().forEach((group, filter) -> {
                if (!filter.isDead()) {
                    found.add(topic + "@" + group);
                }
            }));
        return new ArrayList<>(found);
    }
}
