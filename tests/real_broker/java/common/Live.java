import java.nio.file.Path;
import java.util.concurrent.locks.LockSupport;

/** A store that is in use until the parent closes the standard input. */
final class Live {
    private static volatile boolean released;

    private Live() {
    }

    static void hold(Path root, int messagesPerSecond) throws Exception {
        Session session = Session.start(root);
        Thread writer = new Thread(() -> append(session, messagesPerSecond), "harness-writer");
        if (messagesPerSecond > 0) {
            put(session, 0);
            writer.start();
        }
        Main.ready();
        // The end of the input also comes when the parent dies: no store is left running.
        while (System.in.read() >= 0) {
            continue;
        }
        // Not by interrupt: the store itself may be waiting for its next file.
        released = true;
        writer.join();
        session.stop();
    }

    private static void append(Session session, int messagesPerSecond) {
        for (int number = 1; !released; number++) {
            put(session, number);
            LockSupport.parkNanos(1_000_000_000L / messagesPerSecond);
        }
    }

    private static void put(Session session, int number) {
        session.put(Draft.to("live", 0).body("live " + number).tags("Aa").keys("live-" + number).unique(number));
    }
}
