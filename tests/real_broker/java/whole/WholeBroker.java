import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.function.LongSupplier;
import java.util.stream.Collectors;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** The broker with its name server. */
final class WholeBroker {
    static final String NAME_SERVER = "127.0.0.1:9876";
    private static final long PATIENCE_MS = 120_000;

    final BrokerController controller;
    private final NamesrvController nameServer;

    private WholeBroker(BrokerController controller, NamesrvController nameServer) {
        this.controller = controller;
        this.nameServer = nameServer;
    }

    static WholeBroker start(Path root) throws Exception {
        // BrokerStartup does so: a name server takes no topics from a broker of no version.
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        NettyServerConfig nameServerNetty = new NettyServerConfig();
        nameServerNetty.setListenPort(9876);
        NamesrvController nameServer = new NamesrvController(new NamesrvConfig(), nameServerNetty);
        check(nameServer.initialize(), "the name server");
        nameServer.start();

        BrokerController controller = controller(root, NAME_SERVER);
        check(controller.initialize(), "the broker");
        controller.start();
        return new WholeBroker(controller, nameServer);
    }

    /** The broker over `root`, not yet initialized. */
    static BrokerController controller(Path root, String nameServer) throws Exception {
        return controller(settings(root, nameServer), root, 10911);
    }

    private static BrokerController controller(Properties settings, Path root, int port) throws Exception {
        BrokerConfig broker = new BrokerConfig();
        MessageStoreConfig store = new MessageStoreConfig();
        NettyServerConfig netty = new NettyServerConfig();
        MixAll.properties2Object(settings, broker);
        MixAll.properties2Object(settings, store);
        netty.setListenPort(port);
        if (Boolean.parseBoolean(settings.getProperty("authenticationEnabled"))) {
            return authenticating(settings, root, broker, netty, store);
        }
        return new BrokerController(broker, netty, new NettyClientConfig(), store);
    }

    /** A slave of the broker that is started, over `root`. */
    static BrokerController slave(Path root) throws Exception {
        Properties settings = settings(root, NAME_SERVER);
        settings.setProperty("brokerRole", "SLAVE");
        settings.setProperty("brokerId", "1");
        settings.setProperty("haListenPort", "10932");
        BrokerController slave = controller(settings, root, 10931);
        check(slave.initialize(), "the slave");
        slave.start();
        return slave;
    }

    /** A broker with ACL 2.0 (5.3 and later), as BrokerStartup makes it: its users are kept in config/ of the store. */
    private static BrokerController authenticating(Properties settings, Path root, BrokerConfig broker,
        NettyServerConfig netty, MessageStoreConfig store) throws Exception {
        Class<?> type = Class.forName("org.apache.rocketmq.auth.config.AuthConfig");
        Object auth = type.getConstructor().newInstance();
        MixAll.properties2Object(settings, auth);
        type.getMethod("setConfigName", String.class).invoke(auth, "shop");
        type.getMethod("setClusterName", String.class).invoke(auth, "DefaultCluster");
        type.getMethod("setAuthConfigPath", String.class).invoke(auth, root.resolve("config").toString());
        return BrokerController.class.getConstructor(BrokerConfig.class, NettyServerConfig.class,
            NettyClientConfig.class, MessageStoreConfig.class, type)
            .newInstance(broker, netty, new NettyClientConfig(), store, auth);
    }

    private static void check(boolean initialized, String what) {
        if (!initialized) {
            throw new IllegalStateException(what + " cannot be initialized");
        }
    }

    private static Properties settings(Path root, String nameServer) throws Exception {
        Properties settings = new Properties();
        try (InputStream file = Files.newInputStream(Path.of(System.getProperty("harness.settings")))) {
            settings.load(file);
        }
        if (nameServer != null) {
            settings.setProperty("namesrvAddr", nameServer);
        }
        settings.setProperty("brokerIP1", "127.0.0.1");
        settings.setProperty("brokerIP2", "127.0.0.1");
        settings.setProperty("brokerName", "shop");
        settings.setProperty("storePathRootDir", root.toString());
        String paths = settings.getProperty("storePathCommitLog", "commitlog"); // several ones below the root, by commas
        settings.setProperty("storePathCommitLog", Arrays.stream(paths.split(","))
            .map(path -> root.resolve(path).toString()).collect(Collectors.joining(",")));
        return settings;
    }

    void declare(String topic, int queues) throws Exception {
        declare(new TopicConfig(topic, queues, queues, 6));
    }

    /** A topic with a batch consume queue (5.x); its kind cannot be declared twice. */
    void declareBatch(String topic) throws Exception {
        if (controller.getTopicConfigManager().getTopicConfigTable().containsKey(topic)) {
            return;
        }
        TopicConfig config = new TopicConfig(topic, 1, 1, 6);
        Map<String, String> attributes = new HashMap<>();
        attributes.put("+queue.type", "BatchCQ");
        TopicConfig.class.getMethod("setAttributes", Map.class).invoke(config, attributes);
        declare(config);
    }

    private void declare(TopicConfig config) throws Exception {
        controller.getTopicConfigManager().updateTopicConfig(config);
        // A broker of 5.x takes some seconds to find out that its name server is there.
        await("route of " + config.getTopicName(), () -> {
            controller.registerBrokerAll(false, false, true);
            return nameServer.getRouteInfoManager().pickupTopicRouteData(config.getTopicName()) == null ? 0 : 1;
        }, 1);
    }

    long max(String topic, int queue) {
        try {
            return controller.getMessageStore().getMaxOffsetInQueue(topic, queue);
        } catch (Exception unavailable) { // 5.5.0 declares an exception
            throw new IllegalStateException(unavailable);
        }
    }

    /** Wait until `number` is at least `wanted`. */
    static void await(String what, LongSupplier number, long wanted) throws InterruptedException {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (number.getAsLong() < wanted) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException(what + ": " + number.getAsLong() + " instead of " + wanted);
            }
            Thread.sleep(50);
        }
    }

    /** Stop the broker; the name server keeps nothing, and ends with the process. */
    void stop() {
        Thread waker = new Thread(WholeBroker::wakeNetwork);
        waker.setDaemon(true);
        waker.start();
        controller.shutdown();
    }

    /** Have threads that wait for events of the network see now that they are to end: each looks every three seconds. */
    private static void wakeNetwork() {
        try {
            while (true) {
                for (Thread thread : Thread.getAllStackTraces().keySet()) {
                    if (thread.getName().startsWith("NettyEventExecutor")) {
                        thread.interrupt();
                    }
                }
                Thread.sleep(50);
            }
        } catch (InterruptedException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
