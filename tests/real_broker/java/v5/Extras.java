import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Collections;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;
import org.apache.rocketmq.store.timer.TimerCheckpoint;
import org.apache.rocketmq.store.timer.TimerLog;
import org.apache.rocketmq.store.timer.TimerMessageStore;
import org.apache.rocketmq.store.timer.TimerMetrics;
import org.apache.rocketmq.store.timer.TimerWheel;

/** Files that only some brokers write: consume queue ext, timer wheel and log, compaction. */
final class Extras {
    private static final int MESSAGES = 60;
    private static final long FIRST_DELAY_MS = 3_600_000;
    private static final long COMPACTION_MS = 3_000;

    private Extras() {
    }

    static void write(Session session) throws Exception {
        ConfigFiles config = new ConfigFiles(session);
        config.topic("orders", 2);
        config.topic("state", 1);
        session.topics.get("state").setAttributes(Collections.singletonMap("cleanup.policy", "COMPACTION"));
        session.store.getDispatcherList().addFirst(request -> {
            if (request.getConsumeQueueOffset() % 2 == 1) {
                request.setBitMap(new byte[] {1, 2, (byte) (request.getConsumeQueueOffset() + 128)});
            }
        });
        TimerCheckpoint checkpoint = new TimerCheckpoint(session.root.resolve("config/timercheck").toString());
        TimerMessageStore timer = timer(session, checkpoint);
        long now = System.currentTimeMillis() / 1000 * 1000;
        Reflection.set(timer, "currWriteTimeMs", now);  // its own thread, which is not started, moves this on
        long first = now + FIRST_DELAY_MS;
        for (int number = 0; number < MESSAGES; number++) {
            session.put(Draft.to("orders", number % 2).body("order " + number).tags("Tag" + number % 3).unique(number));
            Draft state = Draft.to("state", 0).body("state " + number).keys("k" + number % 7).unique(100 + number);
            // A timer message keeps its real topic in a property, from which its hash is taken.
            state.property("REAL_TOPIC", "orders");
            enqueue(timer, session.put(state), first + number / 3 * 1000L, state.message);
        }
        config.write();
        session.settle();
        Thread.sleep(COMPACTION_MS);
        finish(session.root, timer, checkpoint);
    }

    private static TimerMessageStore timer(Session session, TimerCheckpoint checkpoint) throws Exception {
        MessageStoreConfig config = session.store.getMessageStoreConfig();
        TimerMetrics metrics = new TimerMetrics(session.root.resolve("config/timermetrics").toString());
        TimerMessageStore timer =
            new TimerMessageStore(session.store, config, checkpoint, metrics, new BrokerStatsManager("timer", false));
        timer.load();
        return timer;
    }

    /** Its last parameter came later. */
    private static void enqueue(TimerMessageStore timer, AppendMessageResult put, long due, MessageExt message)
        throws ReflectiveOperationException {
        for (Method method : TimerMessageStore.class.getMethods()) {
            if (method.getName().equals("doEnqueue")) {
                Object[] all = {put.getWroteOffset(), put.getWroteBytes(), due, message, false};
                method.invoke(timer, Arrays.copyOf(all, method.getParameterCount()));
                return;
            }
        }
        throw new NoSuchMethodException("doEnqueue");
    }

    /** What the timer's own threads write from time to time. */
    private static void finish(Path root, TimerMessageStore timer, TimerCheckpoint checkpoint) throws Exception {
        checkpoint.setLastReadTimeMs(1_700_000_000_123L);
        checkpoint.setLastTimerLogFlushPos(MESSAGES * 52L);
        checkpoint.setLastTimerQueueOffset(MESSAGES);
        checkpoint.setMasterTimerQueueOffset(MESSAGES + 1);
        checkpoint.getDataVersion().nextVersion(7);
        checkpoint.flush();
        checkpoint.shutdown();
        timer.getTimerMetrics().persist();
        TimerWheel wheel = (TimerWheel) part(timer, "timerWheel");
        wheel.flush();
        try {
            TimerWheel.class.getMethod("backup", long.class).invoke(wheel, MESSAGES * 52L);
        } catch (NoSuchMethodException before534) {
            // there were no snapshots
        }
        ((TimerLog) part(timer, "timerLog")).getMappedFileQueue().flush(0);
    }

    private static Object part(TimerMessageStore timer, String name) throws ReflectiveOperationException {
        Field field = TimerMessageStore.class.getDeclaredField(name);
        field.setAccessible(true);
        return field.get(timer);
    }
}
