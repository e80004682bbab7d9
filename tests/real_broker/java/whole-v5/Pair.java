import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.stream.Stream;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.ControllerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.controller.ControllerManager;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * A master and a slave under a controller, below `root`: copies of both stores when they are equal, when the slave is
 * behind, when it was made master without what it had not got, and when the old master has come back.
 */
final class Pair {
    private static final String CONTROLLER = "127.0.0.1:9877";
    private static final int QUEUES = 2;

    private final Path root;
    private final ControllerManager controller;
    private final NamesrvController nameServer;
    private int number;

    private Pair(Path root) throws Exception {
        this.root = root;
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        NettyServerConfig netty = new NettyServerConfig();
        netty.setListenPort(9876);
        nameServer = new NamesrvController(new NamesrvConfig(), netty);
        nameServer.initialize();
        nameServer.start();
        ControllerConfig config = new ControllerConfig();
        config.setControllerDLegerGroup("harness");
        config.setControllerDLegerPeers("n0-" + CONTROLLER);
        config.setControllerDLegerSelfId("n0");
        config.setControllerStorePath(root.resolve("controller").toString());
        config.setMappedFileSize(1 << 20);
        config.setScanNotActiveBrokerInterval(500);
        config.setEnableElectUncleanMaster(true);
        controller = new ControllerManager(config, new NettyServerConfig(), new NettyClientConfig());
        controller.initialize();
        controller.start();
    }

    static void run(Path root) throws Exception {
        Pair pair = new Pair(root);
        BrokerController a = pair.start("a", 10911);
        master(a);
        BrokerController b = pair.start("b", 10931);
        pair.put(a, 40);
        caughtUp(a, b);
        b.shutdown();
        a.shutdown();
        pair.copy("equal");

        a = pair.start("a", 10911);
        master(a);
        pair.put(a, 25);
        a.shutdown();
        pair.copy("behind");

        b = pair.start("b", 10931);
        master(b); // by an unclean election: it has not got what the old master took alone
        pair.put(b, 10);
        b.shutdown();
        pair.copy("diverged");

        b = pair.start("b", 10931);
        master(b);
        a = pair.start("a", 10911);
        caughtUp(b, a);
        a.shutdown();
        b.shutdown();
        pair.copy("healed");
    }

    /** Both run, and the master takes messages, until the parent closes the standard input. */
    static void hold(Path root, int messagesPerSecond) throws Exception {
        Pair pair = new Pair(root);
        BrokerController a = pair.start("a", 10911);
        master(a);
        BrokerController b = pair.start("b", 10931);
        Orders.put(a, messagesPerSecond);
        caughtUp(a, b);
        b.shutdown();
        a.shutdown();
    }

    private BrokerController start(String name, int port) throws Exception {
        Properties settings = new Properties();
        try (InputStream file = Files.newInputStream(Path.of(System.getProperty("harness.settings")))) {
            settings.load(file);
        }
        BrokerConfig broker = new BrokerConfig();
        MessageStoreConfig store = new MessageStoreConfig();
        settings.setProperty("namesrvAddr", "127.0.0.1:9876");
        settings.setProperty("brokerIP1", "127.0.0.1");
        settings.setProperty("brokerIP2", "127.0.0.1");
        settings.setProperty("brokerName", "pair");
        settings.setProperty("listenPort", Integer.toString(port));
        settings.setProperty("haListenPort", Integer.toString(port + 1));
        settings.setProperty("storePathRootDir", root.resolve(name).toString());
        settings.setProperty("enableControllerMode", "true");
        settings.setProperty("controllerAddr", CONTROLLER);
        settings.setProperty("syncBrokerMetadataPeriod", "500");
        settings.setProperty("syncControllerMetadataPeriod", "500");
        settings.setProperty("controllerHeartBeatTimeoutMills", "3000");
        settings.setProperty("brokerHeartbeatInterval", "500");
        settings.setProperty("allAckInSyncStateSet", "false");
        MixAll.properties2Object(settings, broker);
        MixAll.properties2Object(settings, store);
        NettyServerConfig netty = new NettyServerConfig();
        netty.setListenPort(port);
        BrokerController started = new BrokerController(broker, netty, new NettyClientConfig(), store);
        if (!started.initialize()) {
            throw new IllegalStateException(name + " cannot be initialized");
        }
        started.start();
        return started;
    }

    private static void master(BrokerController broker) throws InterruptedException {
        WholeBroker.await("a master", () -> broker.getReplicasManager().isMasterState() ? 1 : 0, 1);
    }

    private static void caughtUp(BrokerController master, BrokerController slave) throws InterruptedException {
        WholeBroker.await("the slave", () -> slave.getMessageStore().getMaxPhyOffset() == master.getMessageStore()
            .getMaxPhyOffset() && slave.getMessageStore().getMaxPhyOffset() > 0 ? 1 : 0, 1);
    }

    private void put(BrokerController broker, int count) throws Exception {
        broker.getTopicConfigManager().updateTopicConfig(new TopicConfig("orders", QUEUES, QUEUES, 6));
        for (int i = 0; i < count; i++, number++) {
            MessageExtBrokerInner message = (MessageExtBrokerInner) Draft.to("orders", number % QUEUES)
                .body("order " + number).keys("ORD-" + number).unique(number).message;
            message.setPropertiesString(org.apache.rocketmq.common.message.MessageDecoder
                .messageProperties2String(message.getProperties()));
            // A broker that has become master just now takes nothing for a moment.
            WholeBroker.await("put", () -> broker.getMessageStore().putMessage(message).getPutMessageStatus()
                == PutMessageStatus.PUT_OK ? 1 : 0, 1);
        }
    }

    /** Copy both stores, on which nobody runs. */
    private void copy(String into) throws IOException {
        for (String name : new String[] {"a", "b"}) {
            Path from = root.resolve(name);
            if (!Files.exists(from)) {
                continue;
            }
            try (Stream<Path> paths = Files.walk(from)) {
                for (Path path : (Iterable<Path>) paths::iterator) {
                    Path to = root.resolve(into).resolve(name).resolve(from.relativize(path));
                    Files.createDirectories(to.getParent());
                    Files.copy(path, to);
                }
            }
        }
    }
}
