import java.nio.file.Path;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntFunction;

/** A store that is in use until the parent closes the standard input. */
final class Live {
    private static final int QUEUES = 16;
    private static final int MESSAGES_OF_A_TOPIC = 8000;
    private static final int SAME_PER_SECOND = 20_000;
    private static final long FEW_NS = 10_000_000;
    private static final long CLEANING_PAUSE_MS = 500;
    private static final int FIRST_SHOWN = 10_000_000; // so that all numbers have as many digits
    private static volatile boolean released;

    private Live() {
    }

    static void hold(Path root, int messagesPerSecond) throws Exception {
        hold(root, messagesPerSecond, false, Live::draft);
    }

    /** As many messages to many queues, of topics of which there are more and more. */
    static void load(Path root, int messagesPerSecond) throws Exception {
        hold(root, messagesPerSecond, true, Live::loadDraft);
    }

    /** Messages of one size, numbered from `first` on: what one of them overwrites ends where it ends. */
    static void same(Path root, int first) throws Exception {
        hold(root, SAME_PER_SECOND, false, number -> sameDraft(first + number));
    }

    private static void hold(Path root, int messagesPerSecond, boolean keepsPace, IntFunction<Draft> drafts)
        throws Exception {
        Session session = Session.start(root);
        Thread writer = new Thread(() -> append(session, messagesPerSecond, keepsPace, drafts), "harness-writer");
        if (messagesPerSecond > 0) {
            session.put(drafts.apply(0));
            writer.start();
        }
        Thread cleaner = new Thread(() -> clean(session), "harness-cleaner");
        cleaner.start();
        Main.ready();
        // The end of the input also comes when the parent dies: no store is left running.
        while (System.in.read() >= 0) {
            continue;
        }
        // Not by interrupt: the store itself may be waiting for its next file.
        released = true;
        writer.join();
        cleaner.join();
        session.stop();
    }

    /** The store's own cleaner goes by the age of files, and begins after a minute: this calls it for a log that is long. */
    private static void clean(Session session) {
        try {
            int mostFiles = Integer.parseInt(Session.settings().getProperty("harnessCleansAbove", "0"));
            while (mostFiles > 0 && !released) {
                if (session.root.resolve("commitlog").toFile().list().length > mostFiles) {
                    Retention.clean(session.store);
                }
                Thread.sleep(CLEANING_PAUSE_MS);
            }
        } catch (Exception failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    /** With a pause after each, or a few at a time at a pace that is kept: then what is flushed in the background falls behind. */
    private static void append(Session session, int messagesPerSecond, boolean keepsPace, IntFunction<Draft> drafts) {
        long began = System.nanoTime();
        long pause = 1_000_000_000L / messagesPerSecond;
        for (int number = 1; !released; number++) {
            session.put(drafts.apply(number));
            long early = began + number * pause - System.nanoTime();
            if (!keepsPace || early > FEW_NS) {
                LockSupport.parkNanos(keepsPace ? early : pause);
            }
        }
    }

    private static Draft draft(int number) {
        return Draft.to("live", 0).body("live " + number).tags("Aa").keys("live-" + number).unique(number);
    }

    private static Draft sameDraft(int number) {
        int shown = FIRST_SHOWN + number;
        return Draft.to("same-" + number % 4, number % QUEUES).body("x".repeat(300)).tags("Aa").keys("same-" + shown)
            .unique(shown);
    }

    private static Draft loadDraft(int number) {
        String body = "x".repeat(200 + number % 400);
        return Draft.to("load-" + number / MESSAGES_OF_A_TOPIC, number % QUEUES).body(body).tags("Aa")
            .keys("load-" + number).unique(number);
    }
}
