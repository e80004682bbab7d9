import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.index.IndexHeader;

/** The headers of the index files, and what a query by key finds for every key of the log. */
final class IndexView {
    private static final int HEADER = 40;
    private static final int PHYSICAL_OFFSET = 28;
    /** More than any key has; a client asks for 32 or 64. */
    private static final int ALL = 10_000;

    private IndexView() {
    }

    static List<Object> headers(Session session) throws Exception {
        List<Object> headers = new ArrayList<>();
        for (Path file : LogReader.sorted(session.root.resolve("index"))) {
            if (Files.size(file) >= HEADER) {
                headers.add(header(ByteBuffer.wrap(Files.readAllBytes(file), 0, HEADER)));
            }
        }
        return headers;
    }

    private static Map<String, Object> header(ByteBuffer bytes) {
        IndexHeader header = new IndexHeader(bytes);
        header.load();
        return Json.object(
            "begin_timestamp", header.getBeginTimestamp(),
            "end_timestamp", header.getEndTimestamp(),
            "begin_phy_offset", header.getBeginPhyOffset(),
            "end_phy_offset", header.getEndPhyOffset(),
            "hash_slot_count", header.getHashSlotCount(),
            "index_count", header.getIndexCount());
    }

    static List<Object> queries(Session session, List<Map<String, Object>> records) throws Exception {
        long now = System.currentTimeMillis();
        List<Object> queries = new ArrayList<>();
        for (List<String> key : keys(records)) {
            QueryMessageResult result = session.store.queryMessage(key.get(0), key.get(1), ALL, 0, now);
            queries.add(Json.object("topic", key.get(0), "key", key.get(1), "physical_offsets", offsets(result)));
        }
        return queries;
    }

    /** As a set: a message stands in the answer once per index unit of its hash. */
    private static Set<Long> offsets(QueryMessageResult result) {
        Set<Long> offsets = new TreeSet<>();
        for (ByteBuffer message : result.getMessageBufferList()) {
            offsets.add(message.getLong(PHYSICAL_OFFSET));
        }
        result.release();
        return offsets;
    }

    private static Set<List<String>> keys(List<Map<String, Object>> records) {
        Set<List<String>> keys = new LinkedHashSet<>();
        for (Map<String, Object> record : records) {
            String topic = (String) record.get("topic");
            add(keys, topic, (String) record.get("unique_key"));
            if (record.get("keys") != null) {
                for (String key : ((String) record.get("keys")).split(" ")) {
                    add(keys, topic, key);
                }
            }
        }
        return keys;
    }

    private static void add(Set<List<String>> keys, String topic, String key) {
        if (key != null && !key.isEmpty()) {
            keys.add(Arrays.asList(topic, key));
        }
    }
}
