import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/** What the clients of a small shop do: messages of every sort, and groups that take them, fail, and fall behind. */
final class Shop {
    static final int ORDERS = 60;
    static final int FAILING = 3;
    static final int DELIVERED = 4;
    static final int WAITING = 5;
    static final int TRANSACTIONS = 4;
    static final int TIMED_WAITING = 2;
    static final int BATCHES = 5;
    static final int BATCH = 4;
    private static final int RETRIES = 2;

    /** Keys of the messages, by what has become of them. */
    final Map<String, Collection<String>> keys = new TreeMap<>();
    private final WholeBroker broker;
    private final DefaultMQProducer producer = new DefaultMQProducer("shop");
    private final TransactionMQProducer transactions = new TransactionMQProducer("shop-transactions");
    private final List<DefaultMQPushConsumer> consumers = new ArrayList<>();

    Shop(WholeBroker broker) {
        this.broker = broker;
    }

    void declareTopics() throws Exception {
        broker.declare("orders", 4);
        broker.declare("payments", 2);
        broker.declare("reminders", 1);
        broker.declare("vouchers", 1);
        if (Features.has("batch-queue")) {
            broker.declareBatch("bulk");
        }
        producer.setNamesrvAddr(WholeBroker.NAME_SERVER);
        producer.start();
        transactions.setNamesrvAddr(WholeBroker.NAME_SERVER);
        transactions.setTransactionListener(new Decisions());
        transactions.start();
    }

    void produce() throws Exception {
        for (int number = 0; number < ORDERS; number++) {
            Message order = message("orders", number % 2 == 0 ? "web" : "desk", "ORD-" + number);
            if (number % 10 == 0) {
                MessageAccessor.putProperty(order, "INNER_MULTI_DISPATCH", "%LMQ%alice,%LMQ%bob");
            }
            send(order, "sent");
        }
        for (int number = 0; number < ORDERS / 2; number++) {
            send(message("payments", "card", (number < FAILING ? "FAIL-" : "PAY-") + number), "sent");
        }
        for (int number = 0; number < DELIVERED; number++) {
            send(delayed("SOON-" + number, 1 + number % 2), "delivered");
        }
        for (int number = 0; number < WAITING; number++) {
            send(delayed("LATER-" + number, 17 + number % 2), "waiting");
        }
        for (int number = 0; number < TRANSACTIONS; number++) {
            for (String outcome : new String[] {"COMMIT", "ROLLBACK", "PENDING"}) {
                transactions.sendMessageInTransaction(message("vouchers", "gift", outcome + "-" + number), null);
                note(outcome.toLowerCase(), outcome + "-" + number);
            }
        }
        if (Features.has("batch-queue")) {
            produceTimedAndBatches();
        }
    }

    private void produceTimedAndBatches() throws Exception {
        long now = System.currentTimeMillis();
        Message soon = message("reminders", "timer", "TIMED-SOON-0");
        MessageAccessor.putProperty(soon, "TIMER_DELIVER_MS", String.valueOf(now + 2000));
        send(soon, "timed_delivered");
        for (int number = 0; number < TIMED_WAITING; number++) {
            Message later = message("reminders", "timer", "TIMED-LATER-" + number);
            MessageAccessor.putProperty(later, "TIMER_DELIVER_MS", String.valueOf(now + 3_600_000L * (number + 1)));
            send(later, "timed_waiting");
        }
        for (int batch = 0; batch < BATCHES; batch++) {
            List<Message> messages = new ArrayList<>();
            for (int number = 0; number < BATCH; number++) {
                messages.add(message("bulk", "part", "BULK-" + batch + "-" + number));
            }
            require(producer.send(messages));
            messages.forEach(message -> note("batched", message.getKeys()));
        }
    }

    /** Groups: one takes all payments but fails some for ever, one stops in the middle, one wants a single tag. */
    void consume() throws Exception {
        consumer("billing", "payments", "*", message -> !message.getKeys().startsWith("FAIL"));
        consumer("desk", "orders", "desk", message -> true);
        consumer("reminding", "reminders", "*", message -> true);
        consumer("gifts", "vouchers", "*", message -> true);
        WholeBroker.await("dead letters", () -> broker.max("%DLQ%billing", 0), FAILING);
        WholeBroker.await("payments", () -> consumed("billing"), ORDERS / 2 - FAILING);
        WholeBroker.await("orders of the desk", () -> consumed("desk"), ORDERS / 2);
        WholeBroker.await("delivered", () -> consumed("reminding"),
            DELIVERED + (Features.has("batch-queue") ? 1 : 0));
        WholeBroker.await("committed", () -> consumed("gifts"), TRANSACTIONS);
        for (DefaultMQPushConsumer consumer : consumers) {
            consumer.shutdown();
        }
        consumers.clear();
        for (int number = 0; number < 8; number++) { // nobody takes these: the groups are behind
            send(message("orders", "desk", "LATE-" + number), "sent");
        }
    }

    void close() {
        producer.shutdown();
        transactions.shutdown();
    }

    private interface Work {
        boolean succeeds(MessageExt message);
    }

    private void consumer(String group, String topic, String tags, Work work) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(WholeBroker.NAME_SERVER);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(RETRIES);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.subscribe(topic, tags);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                if (!work.succeeds(message)) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                note("consumed_by_" + group, message.getKeys());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        consumers.add(consumer);
    }

    private long consumed(String group) {
        return keys.getOrDefault("consumed_by_" + group, List.of()).stream().distinct().count();
    }

    private void send(Message message, String fate) throws Exception {
        require(producer.send(message));
        note(fate, message.getKeys());
    }

    static void require(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("not sent: " + result);
        }
    }

    private synchronized void note(String fate, String key) {
        keys.computeIfAbsent(fate, name -> new ConcurrentLinkedQueue<>()).add(key);
    }

    private static Message delayed(String key, int level) {
        Message message = message("reminders", "delay", key);
        message.setDelayTimeLevel(level);
        return message;
    }

    private static Message message(String topic, String tags, String key) {
        return new Message(topic, tags, key, ("{\"key\": \"" + key + "\"}").getBytes(StandardCharsets.UTF_8));
    }

    /** The outcome of a transaction is the first word of its key; a pending one stays so when it is asked for. */
    private final class Decisions implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            switch (message.getKeys().split("-")[0]) {
                case "COMMIT":
                    return LocalTransactionState.COMMIT_MESSAGE;
                case "ROLLBACK":
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                default:
                    return LocalTransactionState.UNKNOW;
            }
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            note("asked", message.getProperty("UNIQ_KEY"));
            return LocalTransactionState.UNKNOW;
        }
    }
}
