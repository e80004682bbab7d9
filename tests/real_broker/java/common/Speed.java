import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;

/** How long the store takes to derive queues and index from a log: `nanoseconds of CPU, of wall time, units`. */
public final class Speed {
    private Speed() {
    }

    public static void main(String[] arguments) {
        try {
            Path root = Path.of(arguments[0]);
            String answer = measure(root, Long.parseLong(arguments[1]));
            Files.writeString(Path.of(arguments[2]), answer);
            // A shutdown waits for threads for seconds; nothing of the store is looked at afterwards.
            Runtime.getRuntime().halt(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    /** From before `load`, whose recovery derives already, until all `messages` have their units. */
    private static String measure(Path root, long messages) throws Exception {
        OperatingSystemMXBean process = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        Session session = new Session(root);
        long cpu = process.getProcessCpuTime();
        long wall = System.nanoTime();
        if (!session.store.load()) {
            throw new IllegalStateException("the store refuses to load " + root);
        }
        if (units(session) < messages) {
            session.store.start();
            session.settle();
        }
        cpu = process.getProcessCpuTime() - cpu;
        wall = System.nanoTime() - wall;
        return cpu + " " + wall + " " + units(session);
    }

    private static long units(Session session) throws Exception {
        long units = 0;
        for (Path topic : LogReader.sorted(session.root.resolve("consumequeue"))) {
            for (Path queue : LogReader.sorted(topic)) {
                int number = Integer.parseInt(queue.getFileName().toString());
                units += session.store.getMaxOffsetInQueue(topic.getFileName().toString(), number);
            }
        }
        return units;
    }
}
