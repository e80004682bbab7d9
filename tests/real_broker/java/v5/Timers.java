import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.timer.Slot;
import org.apache.rocketmq.store.timer.TimerMessageStore;
import org.apache.rocketmq.store.timer.TimerWheel;

/** What a recovered TimerMessageStore would deliver: what its wheel leads to, and what it has not read of its queue. */
final class Timers {
    private static final int MOST = 10_000; // a damaged chain may be a ring

    private Timers() {
    }

    static List<Long> waiting(BrokerController controller) throws Exception {
        TimerMessageStore timers = controller.getTimerMessageStore();
        if (timers == null) {
            return List.of();
        }
        DefaultMessageStore store = (DefaultMessageStore) controller.getMessageStore();
        List<Long> found = new ArrayList<>();
        TimerWheel wheel = timers.getTimerWheel();
        for (long number = 0; number < 2L * wheel.slotsTotal; number++) {
            Slot slot = wheel.getRawSlot(number * wheel.precisionMs);
            if (slot.timeMs > 0 && slot.timeMs >= timers.getCurrReadTimeMs()) { // a recovered slot has no number
                chain(timers, store, slot.lastPos, found);
            }
        }
        unread(store, (long) Reflection.inherited(timers, "currQueueOffset"), found);
        Collections.sort(found);
        return found;
    }

    private static void chain(TimerMessageStore timers, DefaultMessageStore store, long last, List<Long> found) {
        long position = last;
        while (position >= 0 && found.size() < MOST) {
            SelectMappedBufferResult unit = timers.getTimerLog().getTimerMessage(position);
            if (unit == null) {
                return;
            }
            long before = unit.getByteBuffer().getLong(4);
            long message = unit.getByteBuffer().getLong(28);
            int size = unit.getByteBuffer().getInt(36);
            unit.release();
            if (store.lookMessageByOffset(message, size) != null) {
                found.add(message);
            }
            if (before >= position) {
                return;
            }
            position = before;
        }
    }

    private static void unread(DefaultMessageStore store, long next, List<Long> found) throws Exception {
        String topic = TimerMessageStore.TIMER_TOPIC;
        long max = store.getMaxOffsetInQueue(topic, 0);
        long first = Math.max(next, store.getMinOffsetInQueue(topic, 0));
        for (long offset = first; offset < max && offset < first + MOST; offset++) {
            long message = store.getCommitLogOffsetInQueue(topic, 0, offset);
            if (store.lookMessageByOffset(message) != null) {
                found.add(message);
            }
        }
    }
}
