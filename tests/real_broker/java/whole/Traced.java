import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/** Clients with message trace on: one message each that is taken at once, fails in several ways, ends a transaction. */
final class Traced {
    private static final String TOPIC = "deliveries";
    private static final String TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC";
    private static final String FAILING = "FAIL-ONCE";
    private static final String[] KEYS = {"PLAIN", FAILING, "THROWS-ONCE", "NULL-ONCE"};
    private static final int OUTCOMES = KEYS.length * 2 - 1;
    private static final long LAST_TRACES_MS = 3000; // a client sends what it has after half a second, or five

    private final WholeBroker broker;
    private final List<Object> sent = new ArrayList<>();
    private final ConcurrentLinkedQueue<String> taken = new ConcurrentLinkedQueue<>();

    private Traced(WholeBroker broker) {
        this.broker = broker;
    }

    static Map<String, Object> run(Path root) throws Exception {
        System.setProperty("com.rocketmq.recall.default.trace.enable", "true"); // DefaultRecallMessageTraceHook
        WholeBroker broker = WholeBroker.start(root);
        broker.declare(TOPIC, 1);
        Traced traced = new Traced(broker);
        traced.clients();
        Map<String, Object> facts = Json.object("sent", traced.sent, "traces", broker.max(TRACE_TOPIC, 0));
        broker.stop();
        return facts;
    }

    private void clients() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("depot", null, true, null);
        producer.setNamesrvAddr(WholeBroker.NAME_SERVER);
        producer.start();
        TransactionMQProducer transactions = transactions();
        transactions.setNamesrvAddr(WholeBroker.NAME_SERVER);
        transactions.setTransactionListener(new Decisions());
        transactions.start();
        for (String key : KEYS) {
            note(key, producer.send(message(key)));
        }
        note("COMMIT", transactions.sendMessageInTransaction(message("COMMIT"), null));
        note("ROLLBACK", transactions.sendMessageInTransaction(message("ROLLBACK"), null));
        recall(producer);
        DefaultMQPushConsumer consumer = consumer();
        // Each that fails comes a second time, and the committed one is taken, too.
        WholeBroker.await("taken", taken::size, OUTCOMES + 1);
        Thread.sleep(LAST_TRACES_MS);
        consumer.shutdown();
        producer.shutdown();
        transactions.shutdown();
        WholeBroker.await("traces", () -> broker.max(TRACE_TOPIC, 0), 2);
    }

    /** One with trace, where the release has one. */
    private static TransactionMQProducer transactions() throws Exception {
        try {
            return TransactionMQProducer.class.getConstructor(String.class, RPCHook.class, boolean.class, String.class)
                .newInstance("depot-transactions", null, true, null);
        } catch (NoSuchMethodException older) {
            return new TransactionMQProducer("depot-transactions");
        }
    }

    /** A timer message that its producer takes back, where the release has that. */
    private void recall(DefaultMQProducer producer) throws Exception {
        java.lang.reflect.Method recall;
        try {
            recall = DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class);
        } catch (NoSuchMethodException older) {
            return;
        }
        Message later = message("RECALLED");
        MessageAccessor.putProperty(later, "TIMER_DELIVER_MS", String.valueOf(System.currentTimeMillis() + 3_600_000L));
        SendResult result = producer.send(later);
        note("RECALLED", result);
        recall.invoke(producer, TOPIC, SendResult.class.getMethod("getRecallHandle").invoke(result));
    }

    private DefaultMQPushConsumer consumer() throws Exception {
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer("drivers", null, new AllocateMessageQueueAveragely(), true, null);
        consumer.setNamesrvAddr(WholeBroker.NAME_SERVER);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> take(messages.get(0)));
        consumer.start();
        return consumer;
    }

    private ConsumeConcurrentlyStatus take(MessageExt message) {
        taken.add(message.getKeys());
        if (message.getReconsumeTimes() > 0 || !message.getKeys().endsWith("-ONCE")) {
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }
        if (message.getKeys().startsWith("THROWS")) {
            throw new IllegalStateException("this delivery fails once");
        }
        return message.getKeys().equals(FAILING) ? ConsumeConcurrentlyStatus.RECONSUME_LATER : null;
    }

    private void note(String key, SendResult result) {
        sent.add(Json.object("key", key, "unique_key", result.getMsgId()));
    }

    private static Message message(String key) {
        return new Message(TOPIC, "parcel", key, key.getBytes(StandardCharsets.UTF_8));
    }

    /** The outcome of a transaction is its key. */
    private static final class Decisions implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return message.getKeys().equals("COMMIT")
                ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.UNKNOW;
        }
    }
}
