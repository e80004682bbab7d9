import java.io.File;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/** All that a store removes: the cleaner takes the first commit log file, then destroy() takes everything. */
final class Wipe {
    private Wipe() {
    }

    static Map<String, Object> clean(Path root) throws Exception {
        Session session = Session.start(root);
        Retention.expire(root, session.store, 1);
        session.stop();
        return names(root, "cleaned");
    }

    static Map<String, Object> destroy(Path root) throws Exception {
        Session session = Session.load(root);
        session.store.destroy();
        return names(root, "destroyed");
    }

    private static Map<String, Object> names(Path root, String key) {
        Map<String, Object> found = new LinkedHashMap<>();
        String[] names = root.toFile().list();
        Arrays.sort(names);
        found.put(key, Arrays.asList(names));
        File[] log = root.resolve("commitlog").toFile().listFiles();
        found.put("commit_log_files", log == null ? 0 : log.length);
        return found;
    }
}
