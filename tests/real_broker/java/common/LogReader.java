import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/** The records of the commit log files, in order, through the release's own decoder. */
final class LogReader {
    private static final int V1 = 0xDAA320A7;
    private static final int V2 = 0xDAA320AB;
    /** A message with neither body nor topic nor properties, from and to IPv4 hosts. */
    private static final int SMALLEST = 91;

    private LogReader() {
    }

    static List<Map<String, Object>> records(Path root) throws Exception {
        List<Map<String, Object>> records = new ArrayList<>();
        for (Path file : sorted(root.resolve("commitlog"))) {
            read(ByteBuffer.wrap(Files.readAllBytes(file)), records);
        }
        return records;
    }

    /** The files directly in `directory`, by name; none when it is missing. */
    static List<Path> sorted(Path directory) throws Exception {
        if (!Files.isDirectory(directory)) {
            return new ArrayList<>();
        }
        try (Stream<Path> files = Files.list(directory)) {
            return files.sorted().collect(Collectors.toList());
        }
    }

    /** Up to the blank, to the zeros behind the last record, or to damage. */
    private static void read(ByteBuffer file, List<Map<String, Object>> records) {
        int position = 0;
        while (position + SMALLEST <= file.capacity()) {
            int size = file.getInt(position);
            int magic = file.getInt(position + 4);
            if (magic != V1 && magic != V2 || size < SMALLEST || size > file.capacity() - position) {
                return;
            }
            ByteBuffer bytes = slice(file, position, size);
            MessageExt stored = MessageDecoder.decode(bytes.duplicate(), true, false);
            if (stored == null) {
                return;
            }
            records.add(record(stored, MessageDecoder.decode(bytes, true, true), magic));
            position += size;
        }
    }

    private static ByteBuffer slice(ByteBuffer file, int position, int size) {
        ByteBuffer view = file.duplicate();
        view.position(position).limit(position + size);
        return view.slice();
    }

    /** `read` is the message with its body decompressed, null when the decoder refuses that. */
    private static Map<String, Object> record(MessageExt stored, MessageExt read, int magic) {
        Map<String, Object> record = Json.object(
            "physical_offset", stored.getCommitLogOffset(),
            "message_size", stored.getStoreSize(),
            "magic", magic == V1 ? "v1" : "v2",
            "topic", stored.getTopic(),
            "queue_id", stored.getQueueId(),
            "queue_offset", stored.getQueueOffset(),
            "flag", stored.getFlag(),
            "sys_flag", stored.getSysFlag());
        addOrigin(record, stored);
        record.put("body_crc", stored.getBodyCRC());
        record.put("body_stored_base64", base64(stored));
        record.put("body_base64", base64(read));
        record.put("properties", stored.getProperties());
        record.put("message_id", stored.getMsgId());
        record.put("unique_key", stored.getProperty("UNIQ_KEY"));
        record.put("keys", stored.getKeys());
        record.put("tags", stored.getTags());
        return record;
    }

    private static void addOrigin(Map<String, Object> record, MessageExt message) {
        InetSocketAddress born = (InetSocketAddress) message.getBornHost();
        InetSocketAddress store = (InetSocketAddress) message.getStoreHost();
        record.putAll(Json.object(
            "born_timestamp", message.getBornTimestamp(),
            "store_timestamp", message.getStoreTimestamp(),
            "born_host_address", born.getAddress().getHostAddress(),
            "born_host_port", born.getPort(),
            "store_host_address", store.getAddress().getHostAddress(),
            "store_host_port", store.getPort(),
            "reconsume_times", message.getReconsumeTimes(),
            "prepared_transaction_offset", message.getPreparedTransactionOffset()));
    }

    /** Null when the decoder of this release refuses the body, for example a compression it does not know. */
    private static String base64(MessageExt message) {
        if (message == null) {
            return null;
        }
        byte[] body = message.getBody();
        return Base64.getEncoder().encodeToString(body == null ? new byte[0] : body);
    }
}
