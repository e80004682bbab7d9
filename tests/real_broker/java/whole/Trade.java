import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/** Clients of all sorts at work until the input ends; later, on a copy of their store, what comes to them. */
final class Trade {
    private static final long PAUSE_MS = 10;
    private static final int LEVELS = 4; // of 1, 5, 10 and 30 s
    private static final int LATEST_MS = 30_000;
    private static final int TAKEN_AT_ONCE = 8;
    private static final long INVISIBLE_MS = 5_000;
    private static final long PATIENCE_MS = 90_000;
    private static final long SLOW_NS = 100_000_000; // so long an order takes: the group falls behind
    private static final boolean IS_V5 = Features.has("batch-queue");

    /** When clients learned of a message, by what they did or saw and by its key; ms since the epoch. */
    private final Map<String, Map<String, Long>> known = new TreeMap<>();
    private final DefaultMQProducer producer = new DefaultMQProducer("trade");
    private final TransactionMQProducer transactions = new TransactionMQProducer("trade-transactions");
    private final List<DefaultMQPushConsumer> consumers = new ArrayList<>();
    private final Random chance = new Random(7);
    private volatile boolean isClosed;

    private Trade(WholeBroker broker, LocalTransactionState late) throws Exception {
        broker.declare("orders", 2);
        broker.declare("reminders", 1);
        broker.declare("vouchers", 1);
        broker.declare("tasks", 1);
        producer.setNamesrvAddr(WholeBroker.NAME_SERVER);
        producer.start();
        transactions.setNamesrvAddr(WholeBroker.NAME_SERVER);
        transactions.setTransactionListener(new Answers(late));
        transactions.start();
        transactions.sendMessageInTransaction(message("vouchers", "FIRST-2"), null); // else the broker does not know whom to ask
        transactions.getDefaultMQProducerImpl().getMqClientFactory().sendHeartbeatToAllBrokerWithLock();
    }

    /** Work until the input ends; everything that clients knew. */
    static Object work(Path root) throws Exception {
        WholeBroker broker = WholeBroker.start(root);
        Trade trade = new Trade(broker, LocalTransactionState.COMMIT_MESSAGE);
        trade.consumer("billing", "orders", key -> {
            trade.note("consumed", key);
            LockSupport.parkNanos(SLOW_NS);
        });
        List<Thread> threads = trade.start(trade::produce);
        threads.addAll(IS_V5 ? trade.start(() -> trade.pop("taken", () -> trade.chance.nextInt(3) > 0)) : List.of());
        System.out.println("harness: ready");
        while (System.in.read() >= 0) {
            continue;
        }
        trade.close(threads);
        broker.stop();
        return trade.known;
    }

    /** What comes to the clients, until that is all they want: lines of a kind and a key. */
    static Object rest(Path root, Path wanted) throws Exception {
        Map<String, Set<String>> keys = new TreeMap<>();
        for (String line : Files.readAllLines(wanted)) {
            String[] words = line.split("\t");
            keys.computeIfAbsent(words[0], kind -> new TreeSet<>()).add(words[1]);
        }
        WholeBroker broker = WholeBroker.start(root);
        Trade trade = new Trade(broker, LocalTransactionState.UNKNOW);
        trade.consumer("billing", "orders", key -> trade.note("orders", key));
        trade.consumer("auditing", "reminders", key -> trade.note("reminders", key));
        trade.consumer("gifts", "vouchers", key -> {
            trade.note("vouchers", key);
            trade.note("halves", key);
        });
        List<Thread> threads = IS_V5 ? trade.start(() -> trade.pop("tasks", () -> true)) : List.of();
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (!trade.knows(keys) && System.currentTimeMillis() < deadline) {
            Thread.sleep(100);
        }
        trade.close(threads);
        broker.stop();
        return trade.known;
    }

    private interface Work {
        void run() throws Exception;
    }

    private interface Decision {
        boolean isMade();
    }

    private List<Thread> start(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception failure) {
                failure.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
        });
        thread.start();
        return new ArrayList<>(List.of(thread));
    }

    private void close(List<Thread> threads) throws InterruptedException {
        isClosed = true;
        for (Thread thread : threads) {
            thread.join();
        }
        consumers.forEach(DefaultMQPushConsumer::shutdown);
        producer.shutdown();
        transactions.shutdown();
    }

    private void produce() throws Exception {
        for (int number = 0; !isClosed; number++) {
            send("orders", message("orders", "ORD-" + number));
            Message delayed = message("reminders", "DELAY-" + number);
            delayed.setDelayTimeLevel(1 + number % LEVELS);
            send("delayed", delayed);
            transactions.sendMessageInTransaction(message("vouchers", "HALF-" + number), null);
            note("halves", "HALF-" + number);
            if (IS_V5) {
                Message timer = message("reminders", "TIMER-" + number);
                long due = System.currentTimeMillis() + 1000 + chance.nextInt(LATEST_MS);
                MessageAccessor.putProperty(timer, "TIMER_DELIVER_MS", String.valueOf(due));
                send("timers", timer);
                send("tasks", message("tasks", "TASK-" + number));
            }
            Thread.sleep(PAUSE_MS);
        }
    }

    /** Take tasks, and acknowledge some of them. */
    private void pop(String kind, Decision acknowledges) throws Exception {
        Pops pops = new Pops(producer);
        while (!isClosed) {
            for (MessageExt task : taken(pops)) {
                note(kind, task.getKeys());
                if (acknowledges.isMade()) {
                    note("acknowledged", task.getKeys()); // the broker may know it from now on
                    pops.acknowledge(task);
                }
            }
        }
    }

    /** Some tasks; none where there is no answer in time, and then they come back. */
    private static List<MessageExt> taken(Pops pops) throws Exception {
        try {
            return pops.pop(TAKEN_AT_ONCE, INVISIBLE_MS);
        } catch (ExecutionException late) {
            return List.of();
        }
    }

    private void consumer(String group, String topic, Consumer<String> takes) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(WholeBroker.NAME_SERVER);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> takes.accept(message.getKeys()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        consumers.add(consumer);
    }

    private void send(String kind, Message message) throws Exception {
        Shop.require(producer.send(message));
        note(kind, message.getKeys());
    }

    private void note(String kind, String key) {
        Map<String, Long> times;
        synchronized (known) {
            times = known.computeIfAbsent(kind, name -> new ConcurrentSkipListMap<>());
        }
        times.putIfAbsent(key, System.currentTimeMillis());
    }

    private boolean knows(Map<String, Set<String>> keys) {
        synchronized (known) {
            return keys.entrySet().stream().allMatch(
                wanted -> known.getOrDefault(wanted.getKey(), Map.of()).keySet().containsAll(wanted.getValue()));
        }
    }

    private static Message message(String topic, String key) {
        return new Message(topic, "trade", key, ("{\"key\": \"" + key + "\"}").getBytes(StandardCharsets.UTF_8));
    }

    /** Of five transactions two are committed and one is rolled back; one has an answer only when it is asked for. */
    private final class Answers implements TransactionListener {
        private final LocalTransactionState late;

        Answers(LocalTransactionState late) {
            this.late = late;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object number) {
            return answer(message, LocalTransactionState.UNKNOW);
        }

        private LocalTransactionState answer(Message message, LocalTransactionState late) {
            switch (Integer.parseInt(message.getKeys().split("-")[1]) % 5) {
                case 0:
                case 1:
                    return LocalTransactionState.COMMIT_MESSAGE;
                case 2:
                    note("rolled back", message.getKeys());
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                case 3:
                    return late;
                default:
                    return LocalTransactionState.UNKNOW;
            }
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            note("halves", message.getKeys());
            return answer(message, late);
        }
    }
}
