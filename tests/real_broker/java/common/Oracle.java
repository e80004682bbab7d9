import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Everything the real classes say about a store; the store given is used up, so give a copy. */
final class Oracle {
    private static final String[] DATA = {"commitlog", "consumequeue", "batchconsumequeue"};

    private Oracle() {
    }

    static Map<String, Object> of(Path root) throws Exception {
        List<Map<String, Object>> records = LogReader.records(root);
        Session session = Session.load(root);
        Map<String, Object> commitLog = bounds(session);
        List<Map<String, Object>> queues = QueueView.all(session);
        List<Object> indexFiles = IndexView.headers(session);
        session.store.start();
        session.settle();
        Map<String, Object> recovered = started(session, records);
        return Json.object(
            "commit_log", commitLog,
            "records", records,
            "queues", queues,
            "index", Json.object("files", indexFiles),
            "recovered", recovered);
    }

    static Map<String, Object> recover(Path root) throws Exception {
        List<Map<String, Object>> records = LogReader.records(root);
        Session session = Session.start(root);
        Map<String, Object> recovered = started(session, records);
        session.stop();
        return recovered;
    }

    /** What a start leaves; only now, since 5.x serves no consumer and no query before it. */
    private static Map<String, Object> started(Session session, List<Map<String, Object>> records) throws Exception {
        List<Map<String, Object>> queues = QueueView.all(session);
        for (Map<String, Object> queue : queues) {
            queue.put("reachable", QueueView.reachable(session.store, queue));
        }
        return Json.object(
            "commit_log", bounds(session),
            "queues", queues,
            "index", Json.object("files", IndexView.headers(session), "queries", IndexView.queries(session, records)),
            "files", files(session.root));
    }

    private static Map<String, Object> bounds(Session session) {
        return Json.object(
            "min_offset", session.store.getMinPhyOffset(),
            "max_offset", session.store.getMaxPhyOffset());
    }

    /** Data files by path; index files are left out because a rebuilt one is named by the time of the rebuild. */
    private static List<String> files(Path root) throws Exception {
        List<String> files = new ArrayList<>();
        for (String part : DATA) {
            if (Files.exists(root.resolve(part))) {
                try (Stream<Path> tree = Files.walk(root.resolve(part))) {
                    files.addAll(tree.filter(Files::isRegularFile).map(file -> root.relativize(file).toString())
                        .sorted().collect(Collectors.toList()));
                }
            }
        }
        return files;
    }
}
