import com.alibaba.fastjson.JSONArray;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.queue.CqUnit;

/** What a started store answers: range, units, pulls and offsets by time of each queue, and messages by their keys. */
final class StoreFacts {
    private static final int[] MAXIMA = {1, 5, 32, 900};
    private static final int PULLS = 8; // of a queue
    private static final int TIMES = 4;
    private static final int KEYS = 150;

    private final DefaultMessageStore store;
    private final Questions questions;
    private final Random random;

    StoreFacts(DefaultMessageStore store, Random random) {
        this.store = store;
        this.questions = new Questions(store);
        this.random = random;
    }

    /** Each queue of `topics` that has a message. */
    List<Object> queues(Map<String, Integer> topics) throws Exception {
        List<Object> found = new ArrayList<>();
        for (Map.Entry<String, Integer> topic : topics.entrySet()) {
            for (int queue = 0; queue < topic.getValue(); queue++) {
                long max = store.getMaxOffsetInQueue(topic.getKey(), queue);
                if (max > 0) {
                    found.add(queue(topic.getKey(), queue, max));
                }
            }
        }
        return found;
    }

    private Map<String, Object> queue(String topic, int queue, long max) throws Exception {
        long min = store.getMinOffsetInQueue(topic, queue);
        ConsumeQueueInterface units = store.findConsumeQueue(topic, queue);
        List<Object> all = new ArrayList<>();
        List<Object> pulls = new ArrayList<>();
        List<Object> times = new ArrayList<>();
        for (long offset = min; offset < max; offset++) {
            CqUnit unit = units.get(offset);
            if (unit != null) {
                all.add(Arrays.asList(unit.getQueueOffset(), unit.getPos(), unit.getSize(), unit.getTagsCode()));
            }
        }
        List<Long> offsets = new ArrayList<>(Arrays.asList(0L, min, min + 1, max - 1, max, max + 1, max + 100));
        for (int pull = 0; pull < PULLS; pull++) {
            offsets.add(min + random.nextInt((int) (max - min) + 1));
        }
        for (long offset : offsets) {
            String[][] tags = {null, {"Aa"}, {"BB", "paid"}, {"nobody"}};
            JSONArray asked = array(topic, queue, Math.max(0, offset), MAXIMA[random.nextInt(MAXIMA.length)],
                tags[random.nextInt(tags.length)]);
            try {
                pulls.add(Arrays.asList(asked, questions.pull(asked)));
            } catch (NullPointerException inside) { // 5.5.0 at the inner offsets of a batch whose unit is in RocksDB
                continue;
            }
        }
        for (int time = 0; time < TIMES; time++) {
            long moment = store.getMessageStoreTimeStamp(topic, queue, min + random.nextInt((int) (max - min)));
            JSONArray asked = array(topic, queue, moment + random.nextInt(3) - 1, null);
            try {
                times.add(Arrays.asList(asked, questions.time(asked)));
            } catch (NullPointerException inside) { // where the search comes to an inner offset
                continue;
            }
        }
        return Json.object("topic", topic, "queue_id", queue, "min_offset", min, "max_offset", max, "units", all,
            "pulls", pulls, "times", times);
    }

    /** Some keys and unique keys of the log, each with the physical offsets of the answer. */
    List<Object> keys(Path root) throws Exception {
        Set<List<String>> keys = new TreeSet<>((one, other) -> one.toString().compareTo(other.toString()));
        for (Map<String, Object> record : LogReader.records(root)) {
            String all = record.get("unique_key") + " " + record.get("keys");
            for (String key : all.split(" ")) {
                if (!key.equals("null")) {
                    keys.add(Arrays.asList((String) record.get("topic"), key));
                }
            }
        }
        List<List<String>> some = new ArrayList<>(keys);
        java.util.Collections.shuffle(some, random);
        List<Object> found = new ArrayList<>();
        for (List<String> key : some.subList(0, Math.min(KEYS, some.size()))) {
            JSONArray asked = array(key.get(0), key.get(1), 10_000, 0L, System.currentTimeMillis());
            found.add(Arrays.asList(asked, questions.query(asked)));
        }
        return found;
    }

    private static JSONArray array(Object... values) {
        JSONArray array = new JSONArray();
        for (Object value : values) {
            array.add(value instanceof String[] ? new JSONArray(Arrays.asList((Object[]) value)) : value);
        }
        return array;
    }
}
