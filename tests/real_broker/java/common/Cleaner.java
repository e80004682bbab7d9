import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.File;
import java.io.RandomAccessFile;
import java.lang.reflect.Method;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TimeZone;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** The store's own cleaner on many prepared stores, one after the other, each on disks of a chosen level. */
final class Cleaner {
    private static final String[] LEVELS = {"diskSpaceWarningLevelRatio", "diskSpaceCleanForciblyRatio"};
    private static final String[] PARTS = {"commitlog", "consumequeue", "batchconsumequeue", "index"};
    private static final int CHUNK = 1 << 20;

    private final JSONObject scenario;
    private final Path root;
    private final Path other;

    private Cleaner(JSONObject scenario, Path disks) {
        this.scenario = scenario;
        this.root = disks.resolve("first/store");
        this.other = disks.resolve("second/store");
    }

    /** `scenarios` is a JSON list; below `disks` are `first` and `second`, two file systems where that was possible. */
    static Map<String, Object> clean(Path scenarios, Path disks) throws Exception {
        List<Object> answers = new ArrayList<>();
        for (Object scenario : JSON.parseArray(new String(Files.readAllBytes(scenarios), "UTF-8"))) {
            answers.add(new Cleaner((JSONObject) scenario, disks).answer());
        }
        return Json.object("answers", answers);
    }

    private Map<String, Object> answer() throws Exception {
        Path source = Path.of(scenario.getString("source"));
        copy(source.resolve("first"), root);
        copy(source.resolve("second"), other);
        TimeZone before = TimeZone.getDefault();
        TimeZone.setDefault(TimeZone.getTimeZone(scenario.getString("zone")));
        try {
            return runs();
        } finally {
            TimeZone.setDefault(before);
            for (Path store : new Path[] {root, other}) {
                delete(store);
                Files.deleteIfExists(store.resolveSibling("ballast"));
            }
        }
    }

    private Map<String, Object> runs() throws Exception {
        DefaultMessageStore store = Family.open(config(), Session.topicsOf(root));
        if (!store.load()) {
            throw new IllegalStateException("the store refuses to load " + scenario);
        }
        if (scenario.getBooleanValue("without_queues")) {
            delete(root.resolve("consumequeue"));
        }
        if (scenario.getBooleanValue("manual")) {
            manual(store);
        }
        if (scenario.getBooleanValue("hold_first")) {
            hold(store);
        }
        fill(root.getParent(), scenario.getDoubleValue("first_level"));
        fill(other.getParent(), scenario.getDoubleValue("second_level"));
        List<Object> runs = new ArrayList<>();
        for (int run = 0; run < scenario.getIntValue("runs"); run++) {
            runs.add(run(store));
        }
        // The one thread that a store has before its start; it would keep the store in memory.
        Object allocation = Reflection.get(store, "allocateMappedFileService");
        allocation.getClass().getMethod("shutdown").invoke(allocation);
        return Json.object("runs", runs);
    }

    private Map<String, Object> run(DefaultMessageStore store) throws Exception {
        Map<String, Object> first = space(root.getParent());
        Map<String, Object> second = space(other.getParent());
        long begin = System.currentTimeMillis();
        Retention.clean(store);
        long end = System.currentTimeMillis();
        return Json.object("begin", begin, "end", end, "first", first, "second", second,
            "files", files(root), "other_files", files(other),
            "min_offset", store.getMinPhyOffset(), "queues", minimums(store));
    }

    private MessageStoreConfig config() throws Exception {
        Properties settings = new Properties();
        try (var file = Files.newInputStream(Path.of(System.getProperty("harness.settings")))) {
            settings.load(file);
        }
        for (Map.Entry<String, Object> setting : scenario.getJSONObject("settings").entrySet()) {
            settings.setProperty(setting.getKey(), setting.getValue().toString());
        }
        settings.setProperty("storePathRootDir", root.toString());
        settings.setProperty("storePathCommitLog", scenario.getString("log_paths")
            .replace("{first}", root.toString()).replace("{second}", other.toString()));
        for (String level : LEVELS) {
            String name = "rocketmq.broker." + level;
            String value = scenario.getString(level);
            if (value == null) {
                System.clearProperty(name);
            } else {
                System.setProperty(name, value);
            }
        }
        MessageStoreConfig config = new MessageStoreConfig();
        MixAll.properties2Object(settings, config);
        return config;
    }

    /** What mqadmin's deleteExpiredCommitLog does; 4.x spells it in two ways. */
    private static void manual(DefaultMessageStore store) throws Exception {
        for (Method method : DefaultMessageStore.class.getMethods()) {
            if (method.getName().matches("exe?cuteDeleteFilesManual+y")) {
                method.invoke(store);
                return;
            }
        }
        throw new IllegalStateException("no executeDeleteFilesManually");
    }

    /** Keep a reference on the first commit log file, as a consumer does that reads from it. */
    private static void hold(DefaultMessageStore store) throws Exception {
        Object queue = Reflection.get(store.getCommitLog(), "mappedFileQueue");
        Object file = queue.getClass().getMethod("getFirstMappedFile").invoke(queue);
        file.getClass().getMethod("hold").invoke(file);
    }

    /** Write a ballast until `percent` of the disk are used; nothing when 0 is asked for. */
    private static void fill(Path disk, double percent) throws Exception {
        if (percent <= 0) {
            return;
        }
        File file = disk.toFile();
        long wanted = (long) (file.getTotalSpace() * percent / 100) - (file.getTotalSpace() - file.getFreeSpace());
        byte[] chunk = new byte[CHUNK];
        try (RandomAccessFile ballast = new RandomAccessFile(disk.resolve("ballast").toFile(), "rw")) {
            for (long left = wanted; left > 0; left -= CHUNK) {
                ballast.write(chunk, 0, (int) Math.min(left, CHUNK));
            }
        }
    }

    private static Map<String, Object> space(Path disk) {
        File file = disk.toFile();
        return Json.object("total", file.getTotalSpace(), "free", file.getFreeSpace(), "usable", file.getUsableSpace());
    }

    private static List<String> files(Path store) throws Exception {
        List<String> files = new ArrayList<>();
        for (String part : PARTS) {
            if (Files.exists(store.resolve(part))) {
                try (Stream<Path> tree = Files.walk(store.resolve(part))) {
                    files.addAll(tree.filter(Files::isRegularFile).map(file -> store.relativize(file).toString())
                        .sorted().collect(Collectors.toList()));
                }
            }
        }
        return files;
    }

    /** [topic, queue, minimum] of every queue directory; none when the directory is gone. */
    private List<Object> minimums(DefaultMessageStore store) throws Exception {
        List<Object> found = new ArrayList<>();
        for (String part : new String[] {"consumequeue", "batchconsumequeue"}) {
            for (Path topic : LogReader.sorted(root.resolve(part))) {
                for (Path queue : LogReader.sorted(topic)) {
                    String name = topic.getFileName().toString();
                    int number = Integer.parseInt(queue.getFileName().toString());
                    found.add(List.of(name, number, store.getMinOffsetInQueue(name, number)));
                }
            }
        }
        return found;
    }

    private static void copy(Path from, Path to) throws Exception {
        Files.createDirectories(to);
        if (!Files.exists(from)) {
            return;
        }
        try (Stream<Path> tree = Files.walk(from)) {
            for (Path path : (Iterable<Path>) tree::iterator) {
                Path target = to.resolve(from.relativize(path));
                if (Files.isDirectory(path)) {
                    Files.createDirectories(target);
                } else {
                    Files.copy(path, target, StandardCopyOption.COPY_ATTRIBUTES);
                }
            }
        }
    }

    private static void delete(Path tree) throws Exception {
        if (!Files.exists(tree)) {
            return;
        }
        Files.walkFileTree(tree, new SimpleFileVisitor<Path>() {
            @Override
            public FileVisitResult visitFile(Path file, BasicFileAttributes attributes) throws java.io.IOException {
                Files.delete(file);
                return FileVisitResult.CONTINUE;
            }

            @Override
            public FileVisitResult postVisitDirectory(Path directory, java.io.IOException error)
                throws java.io.IOException {
                Files.delete(directory);
                return FileVisitResult.CONTINUE;
            }
        });
    }
}
