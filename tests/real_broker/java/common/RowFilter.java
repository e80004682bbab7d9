import java.lang.reflect.Method;
import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ThreadPoolExecutor;
import org.apache.rocketmq.store.DefaultMessageStore;

/** Have a store clean once, and then take away the rows of topics that it does not have; RocksDB classes by name. */
final class RowFilter {
    private static final long AT_MOST_MS = 60_000;

    private RowFilter() {
    }

    static Map<String, Object> run(Path root) throws Exception {
        Session session = Session.start(root);
        DefaultMessageStore store = session.store;
        Retention.clean(store);
        Object queues = inRocksDb(store);
        if (Features.has("queue-store")) {
            Object service = Reflection.get(queues, "cleanConsumeQueueService");
            Method run = service.getClass().getDeclaredMethod("run");
            run.setAccessible(true);
            run.invoke(service);
        }
        await(queues);
        Method dirty = queues.getClass().getDeclaredMethod("cleanDirty", Set.class);
        dirty.setAccessible(true);
        dirty.invoke(queues, session.topics.keySet());
        long minimum = store.getMinPhyOffset();
        session.stop();
        return Json.object("min_offset", minimum);
    }

    /** The store of queues in RocksDB: the only one, or the second. */
    private static Object inRocksDb(DefaultMessageStore store) throws Exception {
        try {
            Object second = Reflection.inherited(store, "rocksDBMessageStore");
            store = second == null ? store : (DefaultMessageStore) second;
        } catch (NoSuchFieldException other) {
            // 5.3.1 to 5.3.3 only
        }
        Object queues = store.getClass().getMethod("getQueueStore").invoke(store);
        if (!queues.getClass().getSimpleName().startsWith("Combine")) {
            return queues;
        }
        return queues.getClass().getMethod("getRocksDBConsumeQueueStore").invoke(queues);
    }

    /** A compaction runs in a thread of its own. */
    private static void await(Object queues) throws Exception {
        Object storage = Reflection.get(queues, "rocksDBStorage");
        ThreadPoolExecutor compactions = (ThreadPoolExecutor) Reflection.inherited(storage, "manualCompactionThread");
        long deadline = System.currentTimeMillis() + AT_MOST_MS;
        while (compactions.getCompletedTaskCount() < compactions.getTaskCount()) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("a compaction has not ended");
            }
            Thread.sleep(10);
        }
    }
}
