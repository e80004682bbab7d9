import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.AppendMessageResult;

/** The special cases of the full scenarios; what the release under test does not know is left out. */
final class Specials {
    /** 148 bytes: more than the one signed byte of the first message version can say. */
    static final String LONG_TOPIC = "%RETRY%" + String.join("-", Collections.nCopies(20, "groups")) + "xx";
    private static final String BORN_V6 = "2001:db8::17";
    private static final String BROKER_V6 = "2001:db8:0:0:1::1";
    private static final int BATCH = 5;
    private static final int ARCHIVED = 4;
    /** As GEOMETRY in harness.py says. */
    private static final long LOG_FILE = 65536;

    private final Session session;
    private final Text text;
    private int number = 10_000;
    private int archived;

    Specials(Session session, Text text) {
        this.session = session;
        this.text = text;
    }

    void write(int round) {
        if (archived < ARCHIVED && logFileEndsSoon()) {
            archive();
        }
        delayed(round);
        if (round % 10 == 4) {
            transactions();
        }
        if (round % 6 == 1) {
            batches();
        }
        if (round % 4 == 2) {
            retried(round);
        }
        versioned(round);
    }

    private void versioned(int round) {
        if (Features.has("ipv6")) {
            hosts(round);
        }
        if (Features.has("lmq")) {
            lightQueues(round);
        }
        if (Features.has("batch-queue") && round % 5 == 0) {
            innerBatch();
        }
        if (Features.has("v2") && round % 5 == 2) {
            session.put(Draft.to(LONG_TOPIC, 0).body("long topic, round " + round).tags("Aa").unique(number++));
        }
    }

    /** A message too large for the rest of the log file leaves a large blank; a round takes about 7,000 bytes. */
    private boolean logFileEndsSoon() {
        long left = LOG_FILE - session.store.getMaxPhyOffset() % LOG_FILE;
        return left > 9_000 && left < 18_000;
    }

    private void archive() {
        session.put(Draft.to("archive", 0).body(text.words(19_000)).keys("archive-" + archived++).unique(number++));
    }

    /** Every delay level in turn. */
    private void delayed(int round) {
        if (round % 2 == 0) {
            String level = String.valueOf(1 + round / 2 % 18);
            session.put(Draft.to("orders", 1).body("reminder, level " + level).tags("remind").keys("remind-" + round)
                .unique(number++).property("DELAY", level));
        }
    }

    private void retried(int round) {
        session.put(Draft.to("%RETRY%billing", 0).body("tried " + round).tags("BB").keys("retry-" + round)
            .unique(number++).reconsumed(1 + round % 16).property("RETRY_TOPIC", "orders"));
    }

    /** Prepared and rolled back as releases before 4.3 stored them, then half, commit and op as later ones do. */
    private void transactions() {
        long prepared = session.put(transaction(0x4)).getWroteOffset();
        session.put(transaction(0x8).prepared(prepared));
        session.put(transaction(0xc).prepared(prepared));

        AppendMessageResult half = session.put(Draft.to("RMQ_SYS_TRANS_HALF_TOPIC", 0).body("half").tags("Aa")
            .unique(number).property("TRAN_MSG", "true").property("PGROUP", "shop")
            .property("REAL_TOPIC", "payments").property("REAL_QID", "1"));
        session.put(transaction(0x8).prepared(half.getWroteOffset()));
        session.put(Draft.to("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0).tags("d").body(String.valueOf(half.getLogicsOffset())));
    }

    private Draft transaction(int type) {
        return Draft.to("payments", 1).body("transaction " + number).tags("Aa").keys("trans-" + number)
            .unique(number++).sysFlag(type);
    }

    /** One batch as clients send it: each part has its own unique key, and so has the batch. */
    private void batches() {
        session.put(batch("bulk"));
        if (Features.has("v2-batch")) {
            session.put(batch(LONG_TOPIC));
        }
    }

    private MessageExtBatch batch(String topic) {
        MessageExtBatch batch = new MessageExtBatch();
        batch.setTopic(topic);
        batch.setQueueId(0);
        batch.setBornTimestamp(System.currentTimeMillis() - 3);
        batch.setBornHost(Draft.PRODUCER);
        batch.setStoreHost(Draft.BROKER);
        batch.setBody(MessageDecoder.encodeMessages(parts()));
        MessageAccessor.putProperty(batch, "UNIQ_KEY", Draft.uniqueKey(number++));
        MessageAccessor.putProperty(batch, "WAIT", "true");
        return batch;
    }

    private List<Message> parts() {
        List<Message> parts = new ArrayList<>();
        for (int i = 0; i < BATCH; i++) {
            byte[] body = text.words(40).getBytes(StandardCharsets.UTF_8);
            Message part = new Message("bulk", i % 2 == 0 ? "Aa" : "", "bulk-" + number, body);
            MessageAccessor.putProperty(part, "UNIQ_KEY", Draft.uniqueKey(number++));
            parts.add(part);
        }
        return parts;
    }

    private void hosts(int round) {
        Draft draft = Draft.to("hosts", 0).body("hosts " + round).tags("v6").keys("hosts-" + round).unique(number++);
        if (round % 3 != 1) {
            draft.born(BORN_V6);
        }
        if (round % 3 != 2) {
            draft.stored(BROKER_V6);
        }
        session.put(draft);
    }

    private void lightQueues(int round) {
        session.put(Draft.to("sensors", round % 2).body("reading " + round).tags("Aa").unique(number++)
            .property("INNER_MULTI_DISPATCH", "%LMQ%device-1" + (round % 3 == 0 ? ",%LMQ%device-2" : "")));
    }

    /** One record that carries a whole batch; the broker sets flags and count before it stores it. */
    private void innerBatch() {
        session.put(Draft.to("bulk-inner", 0).body(MessageDecoder.encodeMessages(parts())).unique(number++)
            .tags("Aa").sysFlag(0x40 | 0x80).property("INNER_NUM", String.valueOf(BATCH)));
    }
}
