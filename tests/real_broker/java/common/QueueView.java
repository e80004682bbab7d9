import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;

/** Every queue on disk: its bounds and units, and what a consumer gets from it. */
final class QueueView {
    private static final int UNIT = 20;
    private static final int BATCH_UNIT = 46;
    private static final int PHYSICAL_OFFSET = 28;

    private final Path directory;
    private final String topic;
    private final int queue;
    private final long min;
    private final long max;

    private QueueView(DefaultMessageStore store, Path directory) throws Exception {
        this.directory = directory;
        this.topic = directory.getParent().getFileName().toString();
        this.queue = Integer.parseInt(directory.getFileName().toString());
        this.min = store.getMinOffsetInQueue(topic, queue);
        this.max = store.getMaxOffsetInQueue(topic, queue);
    }

    static List<Map<String, Object>> all(Session session) throws Exception {
        List<Map<String, Object>> queues = new ArrayList<>();
        for (Path directory : directories(session.root.resolve("consumequeue"))) {
            queues.add(new QueueView(session.store, directory).simple());
        }
        for (Path directory : directories(session.root.resolve("batchconsumequeue"))) {
            queues.add(new QueueView(session.store, directory).batch());
        }
        return queues;
    }

    /** TOPIC/QUEUE below `base`; what is not named by a number is no queue to the store either. */
    private static List<Path> directories(Path base) throws Exception {
        List<Path> directories = new ArrayList<>();
        for (Path topic : LogReader.sorted(base)) {
            for (Path directory : LogReader.sorted(topic)) {
                if (directory.getFileName().toString().matches("\\d+")) {
                    directories.add(directory);
                }
            }
        }
        return directories;
    }

    private Map<String, Object> simple() throws Exception {
        List<Path> files = LogReader.sorted(directory);
        long first = start(files) / UNIT;
        return described("simple", first, units(files, first));
    }

    private Map<String, Object> batch() throws Exception {
        List<Path> files = LogReader.sorted(directory);
        return described("batch", start(files) / BATCH_UNIT, batchUnits(files));
    }

    private Map<String, Object> described(String kind, long firstUnit, List<Object> units) {
        return Json.object("kind", kind, "topic", topic, "queue_id", queue, "min_offset", min, "max_offset", max,
            "first_unit", firstUnit, "units", units);
    }

    private static long start(List<Path> files) {
        return files.isEmpty() ? 0 : Long.parseLong(files.get(0).getFileName().toString());
    }

    /** [physical offset, size, tags code] of the units from the first file's start up to the maximum. */
    private List<Object> units(List<Path> files, long first) throws Exception {
        List<Object> units = new ArrayList<>();
        for (Path file : files) {
            ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(file));
            while (bytes.remaining() >= UNIT && first + units.size() < max) {
                units.add(Arrays.asList(bytes.getLong(), bytes.getInt(), bytes.getLong()));
            }
        }
        return units;
    }

    /** [physical offset, size, tags code, store time, base offset, batch size] of the units up to the maximum. */
    private List<Object> batchUnits(List<Path> files) throws Exception {
        List<Object> units = new ArrayList<>();
        long next = -1;
        for (Path file : files) {
            ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(file));
            while (bytes.remaining() >= BATCH_UNIT && next < max) {
                ByteBuffer unit = bytes.slice();
                bytes.position(bytes.position() + BATCH_UNIT);
                next = unit.getLong(28) + unit.getShort(36);
                units.add(Arrays.asList(unit.getLong(0), unit.getInt(8), unit.getLong(12), unit.getLong(20),
                    unit.getLong(28), unit.getShort(36)));
            }
        }
        return units;
    }

    /** [queue offset, physical offset] of the messages a consumer gets that pulls one by one from min to max. */
    static List<Object> reachable(DefaultMessageStore store, Map<String, Object> queue) {
        List<Object> found = new ArrayList<>();
        long offset = (long) queue.get("min_offset");
        while (offset < (long) queue.get("max_offset")) {
            GetMessageResult result = store.getMessage("harness", (String) queue.get("topic"),
                (int) queue.get("queue_id"), offset, 1, null);
            if (result.getStatus() == GetMessageStatus.FOUND) {
                found.add(Arrays.asList(Family.queueOffset(result),
                    result.getMessageBufferList().get(0).getLong(PHYSICAL_OFFSET)));
            }
            result.release();
            // Never stand still, whatever the store answers.
            offset = Math.max(offset + 1, result.getNextBeginOffset());
        }
        return found;
    }
}
