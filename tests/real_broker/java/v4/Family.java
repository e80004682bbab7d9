import java.io.IOException;
import java.lang.reflect.Constructor;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.TopicFilterType;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.ha.HAService;
import org.apache.rocketmq.store.schedule.ScheduleMessageService;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What differs between the families of store classes: the 4.x side. */
final class Family {
    private Family() {
    }

    static DefaultMessageStore open(MessageStoreConfig config, ConcurrentMap<String, TopicConfig> topics)
        throws Exception {
        DefaultMessageStore store = new DefaultMessageStore(config, statistics(),
            (topic, queue, offset, tags, time, bits, properties) -> { }, new BrokerConfig());
        silence(store);
        return store;
    }

    /** Before a start: listen on no port, and deliver nothing. */
    static void silence(DefaultMessageStore store) throws Exception {
        Reflection.set(store, "haService", new SilentHighAvailability(store));
        IdleSchedule idle = new IdleSchedule(store);
        if (store.getScheduleMessageService().getMaxDelayLevel() > 0) { // loaded: it dispatches with due times now
            idle.parseDelayLevel();
        }
        Reflection.set(store, "scheduleMessageService", idle);
    }

    /** The next queue offset to deliver, by delay level. */
    static Map<Integer, Long> delayOffsets(BrokerController controller) throws ReflectiveOperationException {
        DefaultMessageStore store = (DefaultMessageStore) controller.getMessageStore();
        return offsetTable(store.getScheduleMessageService());
    }

    @SuppressWarnings("unchecked")
    private static Map<Integer, Long> offsetTable(ScheduleMessageService service) throws ReflectiveOperationException {
        return (Map<Integer, Long>) Reflection.get(service, "offsetTable");
    }

    /** Physical offsets of the timer messages that wait: a 4.x broker has none. */
    static List<Long> timers(BrokerController controller) {
        return List.of();
    }

    /** Give back what the broker holds beside its store. */
    static void release(BrokerController controller) {
    }

    /** Releases from 4.9 on want to be told whether to count per queue. */
    private static BrokerStatsManager statistics() throws ReflectiveOperationException {
        Constructor<?> constructor = BrokerStatsManager.class.getConstructors()[0];
        boolean counts = constructor.getParameterCount() == 2;
        return (BrokerStatsManager) (counts ? constructor.newInstance("harness", false)
            : constructor.newInstance("harness"));
    }

    static MessageExt message() {
        return new MessageExtBrokerInner();
    }

    static PutMessageResult put(DefaultMessageStore store, MessageExt message) {
        MessageExtBrokerInner inner = (MessageExtBrokerInner) message;
        inner.setPropertiesString(MessageDecoder.messageProperties2String(inner.getProperties()));
        inner.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(TopicFilterType.SINGLE_TAG, inner.getTags()));
        return store.putMessage(inner);
    }

    /** Queue offset of the one message in `result`. */
    static long queueOffset(GetMessageResult result) {
        return result.getNextBeginOffset() - 1;
    }

    /** Physical offset and tags code of a unit; null where there is none. */
    static long[] unit(DefaultMessageStore store, String topic, int queue, long offset) {
        SelectMappedBufferResult found = store.findConsumeQueue(topic, queue).getIndexBuffer(offset);
        if (found == null) {
            return null;
        }
        long[] unit = {found.getByteBuffer().getLong(0), found.getByteBuffer().getLong(12)};
        found.release();
        return unit;
    }

    static void makeBatchQueue(TopicConfig topic) {
        throw new UnsupportedOperationException("batch consume queues are not in 4.x");
    }

    static void writeExtras(Session session) {
        throw new UnsupportedOperationException("timers and compaction are of 5.x");
    }

    /** Listens on no port. */
    private static final class SilentHighAvailability extends HAService {
        SilentHighAvailability(DefaultMessageStore store) throws IOException {
            super(store);
        }

        @Override
        public void start() {
        }

        @Override
        public void shutdown() {
        }
    }

    /** Knows the delay levels but delivers nothing: the 4.x store would append to its own log whenever it runs. */
    private static final class IdleSchedule extends ScheduleMessageService {
        IdleSchedule(DefaultMessageStore store) {
            super(store);
        }

        @Override
        public void start() {
        }

        @Override
        public void shutdown() {
        }
    }
}
