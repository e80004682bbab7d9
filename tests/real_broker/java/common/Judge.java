import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** What a start does with each of many stores, whatever state they are in: one Java process for all of them. */
final class Judge {
    private static final long PATIENCE_S = 8;

    private Judge() {
    }

    /** Start on every directory that `list` names, one a line. */
    static Map<String, Object> all(Path list) throws Exception {
        List<Object> answers = new ArrayList<>();
        for (String root : Files.readAllLines(list)) {
            answers.add(of(Path.of(root)));
        }
        return Json.object("starts", answers);
    }

    private static Map<String, Object> of(Path root) throws InterruptedException {
        Session session = null;
        try {
            session = new Session(root);
            if (!session.store.load()) {
                return Json.object("refuses", "load returns false");
            }
            long min = session.store.getMinPhyOffset();
            long max = session.store.getMaxPhyOffset();
            String failure = start(session);
            Map<String, Object> answer = Json.object("refuses", failure, "min_offset", min, "max_offset", max,
                "queues", "hang".equals(failure) ? new ArrayList<>() : queues(session));
            shutDownAside(session);
            return answer;
        } catch (Throwable failure) {
            return Json.object("refuses", String.valueOf(failure));
        }
    }

    /** Start in a thread of its own: null, the failure, or "hang". */
    private static String start(Session session) throws InterruptedException {
        String[] failure = new String[1];
        CountDownLatch done = new CountDownLatch(1);
        Thread thread = new Thread(() -> {
            try {
                session.store.start();
            } catch (Throwable thrown) {
                failure[0] = String.valueOf(thrown);
            }
            done.countDown();
        });
        thread.setDaemon(true);
        thread.start();
        return done.await(PATIENCE_S, TimeUnit.SECONDS) ? failure[0] : "hang";
    }

    /** 4.x waits for seconds while it stops: meanwhile the next store is judged. */
    private static void shutDownAside(Session session) {
        Thread thread = new Thread(() -> session.store.shutdown());
        thread.setDaemon(true);
        thread.start();
    }

    /** [kind, topic, queue, min, max] of every queue that has a directory. */
    private static List<Object> queues(Session session) throws Exception {
        List<Object> queues = new ArrayList<>();
        for (String base : new String[] {"consumequeue", "batchconsumequeue"}) {
            for (Path topic : LogReader.sorted(session.root.resolve(base))) {
                for (Path queue : LogReader.sorted(topic)) {
                    if (queue.getFileName().toString().matches("\\d+")) {
                        queues.add(bounds(session, base, topic, queue));
                    }
                }
            }
        }
        return queues;
    }

    private static Object bounds(Session session, String base, Path topic, Path queue) throws Exception {
        String name = topic.getFileName().toString();
        int number = Integer.parseInt(queue.getFileName().toString());
        return Arrays.asList(base.startsWith("batch") ? "batch" : "simple", name, number,
            session.store.getMinOffsetInQueue(name, number), session.store.getMaxOffsetInQueue(name, number));
    }
}
