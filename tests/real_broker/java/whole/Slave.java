import java.nio.file.Path;
import org.apache.rocketmq.broker.BrokerController;

/** A master with a shop, and its slave, both below `root`; the slave has all of the log, and has just taken over the rest. */
final class Slave {
    private Slave() {
    }

    static void run(Path root) throws Exception {
        WholeBroker master = WholeBroker.start(root.resolve("master"));
        BrokerController slave = WholeBroker.slave(root.resolve("slave"));
        Shop shop = new Shop(master);
        shop.declareTopics();
        WholeBroker.await("the master's address", () -> takeOver(slave), 1);
        shop.produce();
        shop.consume();
        shop.close();
        WholeBroker.await("the slave", () -> hasAll(slave, master.controller), 1);
        takeOver(slave);
        WholeBroker.await("the slave", () -> hasAll(slave, master.controller), 1); // delayed messages come meanwhile
        slave.shutdown();
        master.stop();
    }

    /** Both run, and the master takes messages, until the parent closes the standard input. */
    static void hold(Path root, int messagesPerSecond) throws Exception {
        WholeBroker master = WholeBroker.start(root.resolve("master"));
        BrokerController slave = WholeBroker.slave(root.resolve("slave"));
        Orders.put(master.controller, messagesPerSecond);
        WholeBroker.await("the slave", () -> hasAll(slave, master.controller), 1);
        slave.shutdown();
        master.stop();
    }

    private static int hasAll(BrokerController slave, BrokerController master) {
        return slave.getMessageStore().getMaxPhyOffset() == master.getMessageStore().getMaxPhyOffset() ? 1 : 0;
    }

    /** What it does every ten seconds (4.x) or once a minute (5.x); whether it has topics of the master's then. */
    private static int takeOver(BrokerController slave) {
        slave.getSlaveSynchronize().syncAll();
        return slave.getTopicConfigManager().getTopicConfigTable().containsKey("orders") ? 1 : 0;
    }
}
