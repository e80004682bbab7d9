import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.TopicFilterType;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.ha.DefaultHAService;
import org.apache.rocketmq.store.queue.CqUnit;
import org.apache.rocketmq.store.stats.BrokerStatsManager;
import org.apache.rocketmq.store.timer.TimerWheel;

/** What differs between the families of store classes: the 5.x side. */
final class Family {
    private Family() {
    }

    static DefaultMessageStore open(MessageStoreConfig config, ConcurrentMap<String, TopicConfig> topics)
        throws Exception {
        BrokerStatsManager statistics = new BrokerStatsManager("harness", false);
        MessageArrivingListener listener = (topic, queue, offset, tags, time, bits, properties) -> { };
        DefaultMessageStore store;
        if ("defaultRocksDB".equalsIgnoreCase(config.getStoreType())) { // 5.1.4 has no such class
            store = (DefaultMessageStore) Class.forName("org.apache.rocketmq.store.RocksDBMessageStore")
                .getConstructors()[0].newInstance(config, statistics, listener, new BrokerConfig(), topics);
        } else {
            store = new DefaultMessageStore(config, statistics, listener, new BrokerConfig(), topics);
        }
        silence(store);
        writeQueuesTwice(store, config);
        return store;
    }

    /** What a broker of 5.3.1 to 5.3.3 does before it loads its store; later ones have one store of both. */
    private static void writeQueuesTwice(DefaultMessageStore store, MessageStoreConfig config) throws Exception {
        try {
            if ((Boolean) config.getClass().getMethod("isRocksdbCQDoubleWriteEnable").invoke(config)) {
                store.getClass().getMethod("enableRocksdbCQWrite").invoke(store);
            }
        } catch (NoSuchMethodException other) {
            return;
        }
    }

    /** Before a start: listen on no port. Delays and timers are the broker's, not the store's. */
    static void silence(DefaultMessageStore store) throws Exception {
        Reflection.set(store, "haService", new SilentHighAvailability(store));
    }

    /** The next queue offset to deliver, by delay level. */
    static Map<Integer, Long> delayOffsets(BrokerController controller) {
        return controller.getScheduleMessageService().getOffsetTable();
    }

    /** Physical offsets of the timer messages that wait, once for each time that they would be delivered. */
    static List<Long> timers(BrokerController controller) throws Exception {
        return Timers.waiting(controller);
    }

    /** Give back what the broker holds beside its store: 39 MB for a timer wheel, twice. */
    static void release(BrokerController controller) throws ReflectiveOperationException {
        if (controller.getTimerMessageStore() != null) {
            TimerWheel wheel = controller.getTimerMessageStore().getTimerWheel();
            wheel.shutdown(false);
            UtilAll.cleanBuffer((ByteBuffer) Reflection.get(wheel, "byteBuffer"));
        }
    }

    static MessageExt message() {
        return new MessageExtBrokerInner();
    }

    static PutMessageResult put(DefaultMessageStore store, MessageExt message) {
        MessageExtBrokerInner inner = (MessageExtBrokerInner) message;
        // The hash of the tag is taken before the broker's hook moves a delayed message to the schedule topic.
        inner.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(TopicFilterType.SINGLE_TAG, inner.getTags()));
        if (inner.getDelayTimeLevel() > 0) {
            moveToScheduleTopic(inner);
        }
        inner.setPropertiesString(MessageDecoder.messageProperties2String(inner.getProperties()));
        return store.putMessage(inner);
    }

    /** In 5.x this is a hook of the broker, not of the store: queue = level - 1, the destination kept in properties. */
    private static void moveToScheduleTopic(MessageExtBrokerInner inner) {
        MessageAccessor.putProperty(inner, MessageConst.PROPERTY_REAL_TOPIC, inner.getTopic());
        MessageAccessor.putProperty(inner, MessageConst.PROPERTY_REAL_QUEUE_ID, String.valueOf(inner.getQueueId()));
        inner.setTopic(TopicValidator.RMQ_SYS_SCHEDULE_TOPIC);
        inner.setQueueId(inner.getDelayTimeLevel() - 1);
    }

    /** Files that only some brokers of the family write. */
    static void writeExtras(Session session) throws Exception {
        Extras.write(session);
    }

    /** Queue offset of the one message in `result`. */
    static long queueOffset(GetMessageResult result) {
        return result.getMessageQueueOffset().get(0);
    }

    /** Physical offset and tags code of a unit; null where there is none. */
    static long[] unit(DefaultMessageStore store, String topic, int queue, long offset) throws Exception {
        CqUnit found = store.findConsumeQueue(topic, queue).get(offset);
        return found == null ? null : new long[] {found.getPos(), found.getTagsCode()};
    }

    static void makeBatchQueue(TopicConfig topic) {
        topic.setAttributes(Collections.singletonMap("queue.type", "BatchCQ"));
    }

    /** Listens on no port. */
    private static final class SilentHighAvailability extends DefaultHAService {
        SilentHighAvailability(DefaultMessageStore store) throws IOException {
            init(store);
        }

        @Override
        public void start() {
        }

        @Override
        public void shutdown() {
        }
    }
}
