import java.nio.file.Path;
import java.util.concurrent.locks.LockSupport;

/** The stores that can be written. */
final class Scenarios {
    /** Between two appends of the endless writer: slow enough that the store stays small until it is killed. */
    private static final long PAUSE_NS = 1_500_000;
    private static final int EXPIRED_FILES = 6;
    private static final long ELECTION_MS = 60_000;
    private static final int LEADER_MESSAGES = 400;
    private static final int DIFFERING_MESSAGES = 400;
    private static final int LIGHT_MESSAGES = 60;

    private Scenarios() {
    }

    static void write(Path root, String scenario) throws Exception {
        Session session = Session.start(root);
        switch (scenario) {
            case "empty":
                break;
            case "single":
                session.put(Draft.to("orders", 0).body("hello rocketmq").tags("Aa").keys("only").unique(1));
                break;
            case "clean":
            case "crc32-property":
                full(session, 0);
                break;
            case "trimmed":
                full(session, EXPIRED_FILES);
                break;
            case "killed":
                full(session, 0);
                writeUntilKilled(session);
                break;
            case "differing":
                differing(session);
                break;
            case "light":
                full(session, 0);
                writeLight(session);
                break;
            case "light-killed":
                full(session, 0);
                writeLight(session);
                writeUntilKilled(session);
                break;
            case "extras":
                Family.writeExtras(session);
                break;
            case "dledger":
                writeAsLeader(session);
                break;
            case "example":
                new Example(session).write();
                break;
            default:
                throw new IllegalArgumentException("no such scenario: " + scenario);
        }
        session.stop();
    }

    private static void full(Session session, int expiredFiles) throws Exception {
        ConfigFiles config = new ConfigFiles(session);
        declareTopics(config);
        new Content(session).writeAll();
        session.settle();
        if (expiredFiles > 0) {
            Retention.expire(session.root, session.store, expiredFiles);
        }
        config.groups("orders", Content.ORDER_QUEUES);
        config.groups("early", 1);
        config.write();
    }

    /**
     * What releases derive differently: light queues that hold what consumers have sent back, which carries the offsets
     * that it had before, and tags and keys that hold the separator of names and values.
     */
    private static void differing(Session session) throws Exception {
        ConfigFiles config = new ConfigFiles(session);
        String[] topics = {"orders", "%RETRY%billing", "%DLQ%billing"};
        for (String name : topics) {
            config.topic(name, 1);
        }
        for (int number = 0; number < DIFFERING_MESSAGES; number++) {
            String name = topics[number % 5 == 0 ? 1 : number % 7 == 0 ? 2 : 0];
            Draft draft = Draft.to(name, 0).body("message " + number).unique(number)
                .keys("key-" + number % 9 + (number % 13 == 0 ? "\u0001" : ""))
                .tags(number % 11 == 0 ? "a\u0001b" : "Aa");
            if (Features.has("lmq")) {
                draft.property("INNER_MULTI_DISPATCH", number % 2 == 0 ? "%LMQ%one" : "%LMQ%one,%LMQ%two");
            }
            if (Features.has("lmq") && !name.equals("orders")) {
                draft.property("INNER_MULTI_QUEUE_OFFSET", number % 2 == 0 ? "3" : "3,1");
            }
            session.put(draft);
        }
        session.settle();
        config.groups("orders", 1);
        config.write();
    }

    private static void declareTopics(ConfigFiles config) {
        config.topic("orders", Content.ORDER_QUEUES);
        config.topic("payments", 2);
        config.topic("telemetry", 2);
        for (String name : new String[] {"early", "archive", "bulk", "hosts", "%RETRY%billing", Specials.LONG_TOPIC}) {
            config.topic(name, 1);
        }
        config.topic("sensors", 2);
        if (Features.has("batch-queue")) {
            config.batchTopic("bulk-inner");
        }
    }

    /** A group of one elects itself; until then it refuses every message. */
    private static void writeAsLeader(Session session) throws Exception {
        long deadline = System.currentTimeMillis() + ELECTION_MS;
        while (!Family.put(session.store, Draft.to("orders", 0).body("first").unique(0).message).isOk()) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("no leader");
            }
            Thread.sleep(50);
        }
        for (int number = 1; number < LEADER_MESSAGES; number++) {
            Draft draft = Draft.to("orders", number % 2).body("order " + number + " ".repeat(number * 7 % 300));
            session.put(draft.tags("Tag" + number % 3).keys("key" + number % 5).unique(number));
        }
    }

    /** Light queues of messages that failed: 5.5.0 keeps such messages out of them, older releases do not. */
    private static void writeLight(Session session) {
        String[] topics = {"%DLQ%billing", "%RETRY%billing", "orders"};
        for (int number = 0; number < LIGHT_MESSAGES; number++) {
            Draft draft = Draft.to(topics[number % topics.length], 0).body("failed " + number).tags("Aa");
            session.put(draft.unique(1_000_000 + number).property("INNER_MULTI_DISPATCH", "%LMQ%device-9"));
        }
    }

    private static void writeUntilKilled(Session session) throws Exception {
        Content content = new Content(session);
        Main.ready();
        for (int round = Content.ROUNDS; ; round++) {
            content.writeRound(round);
            LockSupport.parkNanos(PAUSE_NS);
        }
    }
}
