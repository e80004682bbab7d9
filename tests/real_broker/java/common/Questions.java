import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.OutputStream;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.QueryMessageResult;

/** Many questions to one started store; the answers stand in the order of the questions. */
final class Questions {
    private static final int PHYSICAL_OFFSET = 28;
    private static final String[] SUBSCRIPTIONS = {
        "org.apache.rocketmq.common.protocol.heartbeat.SubscriptionData",
        "org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData"};

    private final DefaultMessageStore store;

    Questions(DefaultMessageStore store) {
        this.store = store;
    }

    /** For each line of `list`, root and file, start on the root itself, answer the file, stop. */
    static void answer(Path list) throws Exception {
        ExecutorService stopping = Executors.newCachedThreadPool(); // takes seconds: meanwhile the next one starts
        List<Future<?>> stops = new ArrayList<>();
        for (String line : Files.readAllLines(list)) {
            String[] names = line.split("\t");
            Session session = Session.start(Path.of(names[0]));
            new Questions(session.store).answerFile(Path.of(names[1]));
            stops.add(stopping.submit(() -> {
                session.stop();
                return null;
            }));
        }
        for (Future<?> stop : stops) {
            stop.get();
        }
    }

    /** Answer each line of `file`, [kind, arguments], as a line of `file`.answers. */
    private void answerFile(Path file) throws Exception {
        try (BufferedReader asked = Files.newBufferedReader(file);
             OutputStream answers = new BufferedOutputStream(Files.newOutputStream(Path.of(file + ".answers")))) {
            for (String line = asked.readLine(); line != null; line = asked.readLine()) {
                JSONArray question = JSON.parseArray(line);
                answers.write(Json.bytes(answer(question.getString(0), question.getJSONArray(1))));
                answers.write('\n');
            }
        }
    }

    private Object answer(String kind, JSONArray asked) throws Exception {
        switch (kind) {
            case "query": return query(asked);
            case "look": return look(asked);
            case "pull": return pull(asked);
            case "time": return time(asked);
            case "read": return read(asked);
            default: throw new IllegalArgumentException(kind);
        }
    }

    /** [topic, key, most, begin, end]: physical offsets in the order of the answer. */
    Object query(JSONArray asked) {
        QueryMessageResult result = store.queryMessage(asked.getString(0), asked.getString(1), asked.getIntValue(2),
            asked.getLongValue(3), asked.getLongValue(4));
        List<Object> offsets = offsets(result.getMessageBufferList());
        result.release();
        return offsets;
    }

    /** [physical offset]: topic, queue, queue offset, physical offset, message id; null where no message is decoded. */
    private Object look(JSONArray asked) {
        MessageExt found;
        try {
            found = store.lookMessageByOffset(asked.getLongValue(0));
        } catch (RuntimeException unreadable) {
            return null;
        }
        return found == null ? null : Json.object("topic", found.getTopic(), "queue_id", found.getQueueId(),
            "queue_offset", found.getQueueOffset(), "physical_offset", found.getCommitLogOffset(),
            "message_id", found.getMsgId());
    }

    /** [topic, queue, offset, most, tags or null]: the answer to a pull. */
    Object pull(JSONArray asked) throws Exception {
        JSONArray tags = asked.getJSONArray(4);
        GetMessageResult result = store.getMessage("harness", asked.getString(0), asked.getIntValue(1),
            asked.getLongValue(2), asked.getIntValue(3), tags == null ? null : filter(tags));
        List<Object> offsets = offsets(result.getMessageBufferList());
        result.release();
        return Json.object("status", result.getStatus().name(), "next_begin_offset", result.getNextBeginOffset(),
            "min_offset", result.getMinOffset(), "max_offset", result.getMaxOffset(), "physical_offsets", offsets);
    }

    /** [topic, queue]: of all messages the queue offset by which they are pulled, and a digest of all but the place. */
    private Object read(JSONArray asked) throws Exception {
        String topic = asked.getString(0);
        int queue = asked.getIntValue(1);
        List<Object> messages = new ArrayList<>();
        long offset = store.getMinOffsetInQueue(topic, queue);
        while (offset < store.getMaxOffsetInQueue(topic, queue)) {
            GetMessageResult result = store.getMessage("harness", topic, queue, offset, 1, null);
            for (ByteBuffer message : result.getMessageBufferList()) {
                messages.add(Arrays.asList(offset, digest(message)));
            }
            result.release();
            offset = Math.max(offset + 1, result.getNextBeginOffset());
        }
        return messages;
    }

    private static String digest(ByteBuffer message) throws Exception {
        byte[] bytes = new byte[message.remaining()];
        message.duplicate().get(bytes);
        Arrays.fill(bytes, PHYSICAL_OFFSET, PHYSICAL_OFFSET + Long.BYTES, (byte) 0);
        return new BigInteger(1, MessageDigest.getInstance("SHA-256").digest(bytes)).toString(16);
    }

    /** [topic, queue, timestamp, boundary or null]: the queue offset. */
    Object time(JSONArray asked) throws Exception {
        String boundary = asked.getString(3);
        if (boundary == null) {
            return store.getOffsetInQueueByTime(asked.getString(0), asked.getIntValue(1), asked.getLongValue(2));
        }
        Class<?> type = Class.forName("org.apache.rocketmq.common.BoundaryType");
        return DefaultMessageStore.class
            .getMethod("getOffsetInQueueByTime", String.class, int.class, long.class, type)
            .invoke(store, asked.getString(0), asked.getIntValue(1), asked.getLongValue(2),
                type.getMethod("valueOf", String.class).invoke(null, boundary));
    }

    private static List<Object> offsets(List<ByteBuffer> messages) {
        List<Object> offsets = new ArrayList<>();
        for (ByteBuffer message : messages) {
            offsets.add(message.getLong(PHYSICAL_OFFSET));
        }
        return offsets;
    }

    /** The store's own filter with the hashes of `tags`. */
    @SuppressWarnings("unchecked")
    static MessageFilter filter(JSONArray tags) throws Exception {
        Class<?> type = subscription();
        Object subscription = type.getDeclaredConstructor().newInstance();
        type.getMethod("setSubString", String.class).invoke(subscription, String.join(" || ", tags.toJavaList(String.class)));
        for (String tag : tags.toJavaList(String.class)) {
            ((Set<Integer>) type.getMethod("getCodeSet").invoke(subscription)).add(tag.hashCode());
        }
        return (MessageFilter) Class.forName("org.apache.rocketmq.store.DefaultMessageFilter")
            .getConstructor(type).newInstance(subscription);
    }

    private static Class<?> subscription() throws ClassNotFoundException {
        try {
            return Class.forName(SUBSCRIPTIONS[0]);
        } catch (ClassNotFoundException moved) {
            return Class.forName(SUBSCRIPTIONS[1]);
        }
    }
}
