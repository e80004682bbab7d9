import java.nio.charset.StandardCharsets;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** The messages of the full scenarios: rounds over the main topics, with one special case per round mixed in. */
final class Content {
    static final int ROUNDS = 66;
    static final int ORDER_QUEUES = 4;
    /** Aa and BB have one Java hash: one tags code for two tags, one index hash for two keys of one topic. */
    private static final String[] TAGS = {"Aa", "BB", null, "created", "支付😀"};
    private static final int EARLY_ROUNDS = 9;
    private static final int EARLY_KEYS = 12;

    private final Session session;
    private final Text text = new Text(20);
    private final Specials specials;
    private int number;

    Content(Session session) {
        this.session = session;
        this.specials = new Specials(session, text);
    }

    void writeAll() throws Exception {
        for (int round = 0; round < ROUNDS; round++) {
            writeRound(round);
            specials.write(round);
        }
    }

    void writeRound(int round) throws Exception {
        for (int queue = 0; queue < ORDER_QUEUES; queue++) {
            session.put(order(queue));
        }
        for (int queue = 0; queue < 2; queue++) {
            session.put(payment(queue, round));
            session.put(telemetry(queue, round));
        }
        if (round < EARLY_ROUNDS) {
            early();
        }
    }

    private Draft order(int queue) {
        int id = number++;
        return Draft.to("orders", queue)
            .body("{\"order\": " + id + ", \"note\": \"" + text.words(100 + text.upTo(900)) + "\"}")
            .tags(TAGS[id % TAGS.length])
            .keys(orderKeys(id))
            .unique(id)
            .flag(id % 3)
            .property("区域", id % 2 == 0 ? "华东" : null);
    }

    /** No key, one, or several, some of them not ASCII. */
    private static String orderKeys(int id) {
        switch (id % 4) {
            case 0:
                return null;
            case 1:
                return "order-" + id;
            case 2:
                return "order-" + id + " customer-" + id % 10 + " 订单" + id;
            default:
                return "clé-" + id + " order-" + id;
        }
    }

    private Draft payment(int queue, int round) {
        int id = number++;
        return Draft.to("payments", queue)
            .body("payment " + id + ": " + text.words(50 + text.upTo(600)))
            .tags((round + queue) % 2 == 0 ? "Aa" : "BB")
            .keys(round % 3 == 0 ? "Aa" : round % 3 == 1 ? "BB" : "Aa BB pay-" + id)
            .property("UNIQ_KEY", round % 5 == 0 ? null : Draft.uniqueKey(id));
    }

    private Draft telemetry(int queue, int round) throws Exception {
        Draft draft = Draft.to("telemetry", queue).property("device", "device-" + round % 7);
        switch (round % 5) {
            case 0:
                return draft;
            case 1:
                return draft.body(text.noise(1 + text.upTo(150)));
            case 2:
                return zlib(draft);
            case 3:
                return typed(draft, round % 2 == 0 ? "LZ4" : "ZSTD");
            default:
                return typed(draft, "ZLIB");
        }
    }

    private Draft zlib(Draft draft) throws Exception {
        return draft.body(Compression.zlib(longText())).sysFlag(0x1);
    }

    /** Of the type asked for; zlib where the release knows no types. */
    private Draft typed(Draft draft, String type) throws Exception {
        if (!Features.has("compression-types")) {
            return zlib(draft);
        }
        return draft.body(Compression.typed(type, longText())).sysFlag(0x1 | Compression.flag(type));
    }

    /** Clients compress bodies over 4096 bytes. */
    private byte[] longText() {
        return text.words(4200).getBytes(StandardCharsets.UTF_8);
    }

    /** A topic that is over early, with so many keys that retention takes the first index file with it. */
    private void early() {
        for (int i = 0; i < 4; i++) {
            int id = number++;
            String keys = IntStream.range(0, EARLY_KEYS).mapToObj(key -> "early-" + id + "-" + key)
                .collect(Collectors.joining(" "));
            session.put(Draft.to("early", 0).body("early " + id).tags("early").keys(keys).unique(id));
        }
    }
}
