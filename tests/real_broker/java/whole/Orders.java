import java.io.IOException;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.store.DefaultMessageStore;

/** What a master takes at a pace, until the parent closes the standard input. */
final class Orders {
    private static final int QUEUES = 4;

    private Orders() {
    }

    static void put(BrokerController master, int perSecond) throws InterruptedException {
        master.getTopicConfigManager().updateTopicConfig(new TopicConfig("live", QUEUES, QUEUES, 6));
        Thread input = new Thread(Orders::readToEnd, "harness-input");
        input.start();
        Main.ready();
        long began = System.nanoTime();
        for (int number = 0; input.isAlive(); number++) {
            // A broker that has become master just now takes nothing for a moment.
            while (!Family.put((DefaultMessageStore) master.getMessageStore(), order(number).message).isOk()) {
                Thread.sleep(50);
            }
            LockSupport.parkNanos(began + number * 1_000_000_000L / perSecond - System.nanoTime());
        }
    }

    private static Draft order(int number) {
        String body = "x".repeat(200 + number % 400);
        return Draft.to("live", number % QUEUES).body(body).tags("Aa").keys("live-" + number).unique(number);
    }

    private static void readToEnd() {
        try {
            while (System.in.read() >= 0) {
                continue;
            }
        } catch (IOException gone) {
            throw new IllegalStateException(gone);
        }
    }
}
