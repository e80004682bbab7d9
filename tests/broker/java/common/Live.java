import java.nio.file.Path;

/** A store that is in use until the parent closes the standard input. */
final class Live {
    private Live() {
    }

    static void hold(Path root, int messagesPerSecond) throws Exception {
        Session session = Session.start(root);
        Thread writer = new Thread(() -> append(session, messagesPerSecond), "harness-writer");
        if (messagesPerSecond > 0) {
            writer.start();
        }
        Main.ready();
        // The end of the input also comes when the parent dies: no store is left running.
        while (System.in.read() >= 0) {
            continue;
        }
        writer.interrupt();
        writer.join();
        session.stop();
    }

    private static void append(Session session, int messagesPerSecond) {
        try {
            for (int number = 0; !Thread.interrupted(); number++) {
                session.put(Draft.to("live", 0).body("live " + number).tags("Aa").keys("live-" + number)
                    .unique(number));
                Thread.sleep(1000 / messagesPerSecond);
            }
        } catch (InterruptedException end) {
            Thread.currentThread().interrupt();
        }
    }
}
