import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/** What the broker says at the end: committed offsets, the queues, and what became of each key. */
final class Facts {
    private static final String[] GROUPS = {"billing", "desk", "reminding", "gifts"};
    private static final String[] TOPICS = {"orders", "payments", "reminders", "vouchers", "bulk"};

    private static final String[] SYSTEM_TOPICS = {
        "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer",
        "%LMQ%alice", "%LMQ%bob"};
    private static final int MOST_QUEUES = 18;

    private Facts() {
    }

    static Map<String, Object> of(WholeBroker broker, Shop shop) {
        return Json.object("keys", shop.keys, "committed", committed(broker), "max_offsets", maxOffsets(broker));
    }

    private static List<Object> committed(WholeBroker broker) {
        List<Object> found = new ArrayList<>();
        for (String group : GROUPS) {
            for (String topic : topicsOf(group)) {
                for (int queue = 0; queue < 4; queue++) {
                    long offset = broker.controller.getConsumerOffsetManager().queryOffset(group, topic, queue);
                    if (offset >= 0) {
                        found.add(Json.object("group", group, "topic", topic, "queue_id", queue, "offset", offset,
                            "max_offset", broker.max(topic, queue)));
                    }
                }
            }
        }
        return found;
    }

    private static List<String> topicsOf(String group) {
        List<String> topics = new ArrayList<>(List.of(TOPICS));
        topics.add("%RETRY%" + group);
        return topics;
    }

    private static Map<String, Object> maxOffsets(WholeBroker broker) {
        Set<String> topics = new TreeSet<>(broker.controller.getTopicConfigManager().getTopicConfigTable().keySet());
        topics.addAll(Arrays.asList(SYSTEM_TOPICS));
        Map<String, Object> found = new TreeMap<>();
        for (String topic : topics) {
            for (int queue = 0; queue < MOST_QUEUES; queue++) {
                long max = broker.max(topic, queue);
                if (max > 0) {
                    found.put(topic + "@" + queue, max);
                }
            }
        }
        return found;
    }
}
