import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/** A broker that serves clients of other processes, as lines of standard input say, until these end. */
final class Serve {
    private static final long QUIET_MS = 1500; // no message came in that time: a consumer has all

    private final WholeBroker broker;
    private volatile boolean isDiskFull;

    private Serve(WholeBroker broker) {
        this.broker = broker;
    }

    static void run(Path root) throws Exception {
        WholeBroker broker = WholeBroker.start(root);
        Serve serve = new Serve(broker);
        System.out.println("harness: ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        int number = 0;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            serve.carryOut(line.split("\t"));
            System.out.println("harness: done " + ++number);
        }
        broker.stop();
    }

    private void carryOut(String[] words) throws Exception {
        if (words[0].equals("topic")) {
            broker.declare(words[1], Integer.parseInt(words[2]));
        } else if (words[0].equals("batch-topic")) {
            broker.declareBatch(words[1]);
        } else if (words[0].equals("permission")) {
            TopicConfig config = broker.controller.getTopicConfigManager().selectTopicConfig(words[1]);
            config.setPerm(Integer.parseInt(words[2]));
            broker.controller.getTopicConfigManager().updateTopicConfig(config);
            broker.controller.registerBrokerAll(false, false, true);
        } else if (words[0].equals("disk")) {
            isDiskFull = words[1].equals("full");
            if (isDiskFull) {
                keepDiskFull();
            }
        } else if (words[0].equals("timers")) {
            sendTimers(words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]));
        } else if (words[0].equals("consume")) {
            Files.write(Path.of(words[4]), Json.bytes(consume(words[1], words[2], Integer.parseInt(words[3]))));
        } else {
            throw new IllegalArgumentException(words[0]);
        }
    }

    /** Messages of a topic that are due some time from now on (5.x). */
    private static void sendTimers(String topic, int count, long delayMs) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("timers");
        producer.setNamesrvAddr(WholeBroker.NAME_SERVER);
        producer.start();
        try {
            for (int number = 0; number < count; number++) {
                Message timer = new Message(topic, "timer", "TIMER-" + number, new byte[] {(byte) number});
                long due = System.currentTimeMillis() + delayMs;
                MessageAccessor.putProperty(timer, "TIMER_DELIVER_MS", String.valueOf(due));
                producer.send(timer);
            }
        } finally {
            producer.shutdown();
        }
    }

    /** The check finds room every ten seconds: what it says is taken back at once. */
    private void keepDiskFull() throws Exception {
        Object flags = Reflection.inherited(broker.controller.getMessageStore(), "runningFlags");
        Method full = flags.getClass().getMethod("getAndMakeDiskFull");
        full.invoke(flags);
        Thread keeper = new Thread(() -> {
            try {
                while (isDiskFull) {
                    full.invoke(flags);
                    Thread.sleep(1);
                }
                flags.getClass().getMethod("getAndMakeDiskOK").invoke(flags);
            } catch (ReflectiveOperationException | InterruptedException impossible) {
                throw new IllegalStateException(impossible);
            }
        });
        keeper.setDaemon(true);
        keeper.start();
    }

    /** All messages of a topic, at least `count`, as a real consumer gets them. */
    private static List<Object> consume(String group, String topic, int count) throws Exception {
        ConcurrentLinkedQueue<Object> taken = new ConcurrentLinkedQueue<>();
        AtomicLong last = new AtomicLong();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(WholeBroker.NAME_SERVER);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                taken.add(seen(message));
            }
            last.set(System.currentTimeMillis());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            WholeBroker.await("consumed of " + topic, taken::size, count);
            WholeBroker.await("quiet", () -> System.currentTimeMillis() - Math.max(last.get(), 1), QUIET_MS);
        } finally {
            consumer.shutdown();
        }
        return new ArrayList<>(taken);
    }

    private static Map<String, Object> seen(MessageExt message) {
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        return Json.object("topic", message.getTopic(), "queue_id", message.getQueueId(),
            "queue_offset", message.getQueueOffset(), "physical_offset", message.getCommitLogOffset(),
            "message_id", message.getMsgId(), "born_timestamp", message.getBornTimestamp(),
            "flag", message.getFlag(), "sys_flag", message.getSysFlag(),
            "reconsume_times", message.getReconsumeTimes(), "properties", properties,
            "body", Base64.getEncoder().encodeToString(message.getBody()));
    }
}
