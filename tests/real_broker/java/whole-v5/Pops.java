import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/**
 * A POP consumer: the first run sends tasks, takes some and acknowledges a few; a later one takes what comes again. In
 * place of tasks that were cut off it sends new ones.
 */
final class Pops {
    private static final String TOPIC = "tasks";
    private static final String GROUP = "workers";
    private static final String BROKER = "127.0.0.1:10911";
    private static final int TASKS = 12;
    private static final int TAKEN = 8;
    private static final long INVISIBLE_MS = 45_000; // longer than a broker takes to stop
    private static final long PATIENCE_MS = 90_000;
    private static final long TIMEOUT_MS = 5_000;

    private final MQClientAPIImpl client;

    Pops(DefaultMQProducer producer) {
        client = producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
    }

    /** A later run takes so many different tasks, within its patience, and acknowledges them or does not. */
    static Map<String, Object> run(Path root, int wanted, boolean acknowledges) throws Exception {
        WholeBroker broker = WholeBroker.start(root);
        broker.declare(TOPIC, 1);
        DefaultMQProducer producer = new DefaultMQProducer("boss");
        producer.setNamesrvAddr(WholeBroker.NAME_SERVER);
        producer.start();
        Pops pops = new Pops(producer);
        Map<String, Object> facts = broker.max(TOPIC, 0) == 0 ? pops.first(producer)
            : pops.later(producer, TASKS - (int) broker.max(TOPIC, 0), wanted, acknowledges);
        producer.shutdown();
        broker.stop();
        return facts;
    }

    private Map<String, Object> first(DefaultMQProducer producer) throws Exception {
        for (int number = 0; number < TASKS; number++) {
            byte[] body = ("task " + number).getBytes(StandardCharsets.UTF_8);
            producer.send(new Message(TOPIC, "task", "TASK-" + number, body));
        }
        List<MessageExt> taken = new ArrayList<>();
        while (taken.size() < TAKEN) { // 5.5.0 may give none for a moment
            taken.addAll(pop(Math.min(5, TAKEN - taken.size()), INVISIBLE_MS));
        }
        List<MessageExt> done = List.of(taken.get(0), taken.get(2), taken.get(6));
        for (MessageExt message : done) {
            acknowledge(message);
        }
        return Json.object("taken", keys(taken), "acknowledged", keys(done));
    }

    /** What comes again, besides the tasks that nobody took before. */
    private Map<String, Object> later(DefaultMQProducer producer, int missing, int wanted, boolean acknowledges)
        throws Exception {
        List<String> sent = new ArrayList<>();
        for (int number = 0; number < missing; number++) {
            sent.add("NEW-" + number);
            producer.send(new Message(TOPIC, "task", "NEW-" + number, "new".getBytes(StandardCharsets.UTF_8)));
        }
        List<MessageExt> taken = new ArrayList<>();
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (new HashSet<>(keys(taken)).size() < wanted && System.currentTimeMillis() < deadline) {
            List<MessageExt> more = pop(8, INVISIBLE_MS);
            for (MessageExt message : acknowledges ? more : List.<MessageExt>of()) {
                acknowledge(message);
            }
            taken.addAll(more);
        }
        return Json.object("sent", sent, "taken", keys(taken), "acknowledged", acknowledges ? keys(taken) : List.of());
    }

    List<MessageExt> pop(int most, long invisibleMs) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(GROUP);
        header.setTopic(TOPIC);
        header.setQueueId(0);
        header.setMaxMsgNums(most);
        header.setInvisibleTime(invisibleMs);
        header.setPollTime(1000);
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(0); // ConsumeInitMode.MIN
        header.setExpType("TAG");
        header.setExp("*");
        header.setOrder(false);
        CompletableFuture<List<MessageExt>> found = new CompletableFuture<>();
        client.popMessageAsync("shop", BROKER, header, TIMEOUT_MS, new PopCallback() {
            @Override
            public void onSuccess(PopResult result) {
                List<MessageExt> messages = result.getMsgFoundList();
                found.complete(messages == null ? new ArrayList<>() : new ArrayList<>(messages));
            }

            @Override
            public void onException(Throwable failure) {
                found.completeExceptionally(failure);
            }
        });
        return found.get(TIMEOUT_MS * 2, TimeUnit.MILLISECONDS);
    }

    void acknowledge(MessageExt message) throws Exception {
        String[] info = ExtraInfoUtil.split(message.getProperty(MessageConst.PROPERTY_POP_CK));
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setTopic(ExtraInfoUtil.getRealTopic(info, TOPIC, GROUP));
        header.setQueueId(ExtraInfoUtil.getQueueId(info));
        header.setOffset(ExtraInfoUtil.getQueueOffset(info));
        header.setConsumerGroup(GROUP);
        header.setExtraInfo(message.getProperty(MessageConst.PROPERTY_POP_CK));
        CompletableFuture<AckResult> done = new CompletableFuture<>();
        client.ackMessageAsync(BROKER, TIMEOUT_MS, new AckCallback() {
            @Override
            public void onSuccess(AckResult result) {
                done.complete(result);
            }

            @Override
            public void onException(Throwable failure) {
                done.completeExceptionally(failure);
            }
        }, header);
        done.get(TIMEOUT_MS * 2, TimeUnit.MILLISECONDS);
    }

    private static List<String> keys(List<MessageExt> messages) {
        List<String> keys = new ArrayList<>();
        messages.forEach(message -> keys.add(message.getKeys()));
        return keys;
    }
}
