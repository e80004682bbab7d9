import org.apache.rocketmq.store.AppendMessageResult;

/** A small web shop: the store that the documentation shows. */
final class Example {
    private static final int ORDERS = 80;
    private static final String[] STATES = {"created", "paid", "shipped", "delivered"};
    private static final String[] ITEMS = {"tea", "coffee", "a red cup", "a blue cup", "café crème", "绿茶"};

    private final Session session;
    private final ConfigFiles config;
    private int number;

    Example(Session session) {
        this.session = session;
        this.config = new ConfigFiles(session);
    }

    void write() throws Exception {
        config.topic("orders", 4);
        config.topic("payments", 2);
        config.topic("%RETRY%billing", 1);
        for (int order = 1; order <= ORDERS; order++) {
            writeOrder(order);
        }
        transaction();
        session.settle();
        commitOffsets();
        config.write();
    }

    private void writeOrder(int order) {
        session.put(message("orders", order % 4, STATES[order % 4], orderKey(order),
            "{\"order\": " + order + ", \"item\": \"" + ITEMS[order % ITEMS.length] + "\", \"quantity\": "
                + (1 + order % 3) + "}"));
        session.put(message("payments", order % 2, "card", orderKey(order) + " PAY-" + order,
            "{\"order\": " + order + ", \"cents\": " + 250 * (1 + order % 3) + "}"));
        if (order % 8 == 0) {
            session.put(message("orders", order % 4, "reminder", orderKey(order), "is the parcel there?")
                .property("DELAY", order % 16 == 0 ? "5" : "14"));
        }
        if (order % 10 == 0) {
            session.put(message("%RETRY%billing", 0, "card", orderKey(order), "{\"order\": " + order + "}")
                .reconsumed(order / 10).property("RETRY_TOPIC", "payments"));
        }
    }

    /** One payment in a transaction: half message, committed message, and the mark that the half is done. */
    private void transaction() {
        AppendMessageResult half = session.put(message("RMQ_SYS_TRANS_HALF_TOPIC", 0, "voucher", "VOUCHER-1",
            "{\"voucher\": 1}").property("TRAN_MSG", "true").property("PGROUP", "shop")
            .property("REAL_TOPIC", "payments").property("REAL_QID", "0"));
        number--;
        session.put(message("payments", 0, "voucher", "VOUCHER-1", "{\"voucher\": 1}")
            .sysFlag(0x8).prepared(half.getWroteOffset()));
        session.put(Draft.to("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0).tags("d").body(String.valueOf(half.getLogicsOffset())));
    }

    private void commitOffsets() throws Exception {
        for (int queue = 0; queue < 4; queue++) {
            long max = session.store.getMaxOffsetInQueue("orders", queue);
            config.offset("orders", "warehouse", queue, max - 3 * queue);
            config.offset("orders", "statistics", queue, 0);
        }
        for (int queue = 0; queue < 2; queue++) {
            config.offset("payments", "billing", queue, session.store.getMaxOffsetInQueue("payments", queue) - 7);
        }
        config.offset("%RETRY%billing", "billing", 0, 5);
    }

    private Draft message(String topic, int queue, String tags, String keys, String body) {
        return Draft.to(topic, queue).body(body).tags(tags).keys(keys).unique(number++);
    }

    private static String orderKey(int order) {
        return "ORD-" + (1000 + order);
    }
}
