import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.Map;

/** A large store, and how long its start takes. */
final class Durations {
    private static final int QUEUES = 32;

    private Durations() {
    }

    /** Write so many messages, by default of 1.2 KB, with a key and a unique key, and stop when the input ends. */
    static void fill(Path root, int count) throws Exception {
        Session session = Session.start(root);
        String body = "x".repeat(Integer.parseInt(Session.settings().getProperty("harnessBodySize", "1000")));
        for (int number = 0; number < count; number++) {
            session.put(Draft.to("large", number % QUEUES).body(body).tags("Aa").keys("large-" + number)
                .unique(number));
        }
        session.settle();
        Main.ready();
        while (System.in.read() >= 0) {
            continue;
        }
        session.stop();
    }

    /** Seconds of `DefaultMessageStore#load`. */
    static Map<String, Object> load(Path root) throws Exception {
        OperatingSystemMXBean process = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long cpu = process.getProcessCpuTime();
        long wall = System.nanoTime();
        Session.load(root);
        return Json.object("cpu", (process.getProcessCpuTime() - cpu) / 1e9, "wall", (System.nanoTime() - wall) / 1e9);
    }
}
