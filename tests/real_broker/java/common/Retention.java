import java.io.File;
import java.nio.file.Path;
import java.util.Arrays;
import org.apache.rocketmq.store.DefaultMessageStore;

/**
 * Let the store's own cleaner take the first commit log files, and no others: a store of the tests was
 * written long ago, and every file of it would have expired by now.
 */
final class Retention {
    private static final long OLD_MS = 100L * 3_600_000;
    private static final String EVERY_HOUR = "00;01;02;03;04;05;06;07;08;09;10;11;12;13;14;15;16;17;18;19;20;21;22;23";

    private Retention() {
    }

    static void expire(Path root, DefaultMessageStore store, int files) throws Exception {
        File[] log = root.resolve("commitlog").toFile().listFiles();
        Arrays.sort(log);
        long now = System.currentTimeMillis();
        for (int i = 0; i < log.length; i++) {
            if (!log[i].setLastModified(i < files ? now - OLD_MS : now)) {
                throw new IllegalStateException("cannot set the time of " + log[i]);
            }
        }
        store.getMessageStoreConfig().setDeleteWhen(EVERY_HOUR);
        clean(store);
        if (log[files - 1].exists() || !log[files].exists()) {
            throw new IllegalStateException("the cleaner did not delete exactly " + files + " commit log files");
        }
    }

    /** The cleaners are private, and the one for queues and index moved twice. */
    static void clean(DefaultMessageStore store) throws Exception {
        Reflection.call(store, "cleanFilesPeriodically");
        if (!Reflection.call(store, "cleanQueueFilesPeriodically") && Features.has("queue-store")) {
            Object queues = store.getClass().getMethod("getQueueStore").invoke(store);
            Reflection.call(queues, "cleanQueueFilesPeriodically");
        }
    }
}
