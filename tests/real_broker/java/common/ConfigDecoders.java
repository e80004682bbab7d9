import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListMap;

/** What the release's own managers make of texts of config files: lines of file name, tab, text, whose own line ends are 0x01. */
final class ConfigDecoders {
    private static final String BROKER = "org.apache.rocketmq.broker.";
    private static final Map<String, String[]> CLASSES = new LinkedHashMap<>();

    static {
        put("topics.json", BROKER + "topic.TopicConfigManager");
        put("consumerOffset.json", BROKER + "offset.ConsumerOffsetManager");
        put("lmqConsumerOffset.json", BROKER + "offset.LmqConsumerOffsetManager");
        put("subscriptionGroup.json", BROKER + "subscription.SubscriptionGroupManager");
        put("consumerFilter.json", BROKER + "filter.ConsumerFilterManager");
        put("delayOffset.json", BROKER + "schedule.ScheduleMessageService",
            "org.apache.rocketmq.store.schedule.ScheduleMessageService");
        put("topicQueueMapping.json", BROKER + "topic.TopicQueueMappingManager");
        put("consumerOrderInfo.json", BROKER + "offset.ConsumerOrderInfoManager",
            BROKER + "pop.orderly.QueueLevelConsumerManager");
        put("timermetrics", "org.apache.rocketmq.store.timer.TimerMetrics");
    }

    private ConfigDecoders() {
    }

    /** For each line `decoded`, `absent` when the release has no such manager, or what its decoder throws. */
    static Map<String, Object> decode(Path lines) throws Exception {
        Map<String, Object> answers = new LinkedHashMap<>();
        for (String line : Files.readAllLines(lines)) {
            int tab = line.indexOf('\t');
            String text = line.substring(tab + 1).replace('\u0001', '\n');
            answers.put(line, decode(line.substring(0, tab), text));
        }
        return Json.object("answers", answers);
    }

    private static String decode(String name, String text) throws Exception {
        Object manager = managerOf(name);
        if (manager == null) {
            return "absent";
        }
        try {
            Method decode = manager.getClass().getMethod("decode", String.class);
            decode.setAccessible(true);
            decode.invoke(manager, text);
            return "decoded";
        } catch (InvocationTargetException refused) {
            return "refused: " + refused.getCause();
        }
    }

    private static void put(String name, String... classes) {
        CLASSES.put(name, classes);
    }

    private static Object managerOf(String name) throws Exception {
        for (String type : CLASSES.get(name)) {
            try {
                return instanceOf(Class.forName(type));
            } catch (ClassNotFoundException absent) {
                continue;
            }
        }
        return null;
    }

    /** A manager without a broker: by its empty constructor, else with nothing but empty maps in it. */
    private static Object instanceOf(Class<?> type) throws Exception {
        try {
            Constructor<?> empty = type.getDeclaredConstructor();
            empty.setAccessible(true);
            return empty.newInstance();
        } catch (NoSuchMethodException needsBroker) {
            Class<?> unsafe = Class.forName("sun.misc.Unsafe");
            Field instance = unsafe.getDeclaredField("theUnsafe");
            instance.setAccessible(true);
            Object manager = unsafe.getMethod("allocateInstance", Class.class).invoke(instance.get(null), type);
            for (Class<?> level = type; level != Object.class; level = level.getSuperclass()) {
                for (Field field : level.getDeclaredFields()) {
                    fill(manager, field);
                }
            }
            return manager;
        }
    }

    private static void fill(Object manager, Field field) throws Exception {
        if (Modifier.isStatic(field.getModifiers())) {
            return;
        }
        field.setAccessible(true);
        if (field.getType() == ConcurrentSkipListMap.class) {
            field.set(manager, new ConcurrentSkipListMap<>());
        } else if (Map.class.isAssignableFrom(field.getType())) {
            field.set(manager, new ConcurrentHashMap<>());
        } else if (field.getType().getSimpleName().equals("DataVersion")) {
            field.set(manager, field.getType().getDeclaredConstructor().newInstance());
        }
    }
}
