import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Locale;
import java.util.Set;
import java.util.TreeSet;

/** What broker.conf may set in objects of the named classes (MixAll#properties2Object): class, jar, key, default. */
public final class Settings {
    private static final Set<String> TYPES = Set.of("int", "Integer", "long", "Long", "double", "Double",
        "boolean", "Boolean", "float", "Float", "String");

    private Settings() {
    }

    public static void main(String[] arguments) throws Exception {
        TreeSet<String> lines = new TreeSet<>();
        for (String name : Arrays.copyOfRange(arguments, 1, arguments.length)) {
            Class<?> type;
            try {
                type = Class.forName(name);
            } catch (ClassNotFoundException e) {
                continue; // the release has no such class
            }
            Path jar = Path.of(type.getProtectionDomain().getCodeSource().getLocation().getPath()).getFileName();
            Object object = type.getConstructor().newInstance();
            for (Method method : type.getMethods()) {
                String setter = method.getName();
                Class<?>[] given = method.getParameterTypes();
                if (setter.startsWith("set") && given.length > 0 && TYPES.contains(given[0].getSimpleName())) {
                    String key = setter.substring(3, 4).toLowerCase(Locale.ROOT) + setter.substring(4);
                    lines.add(String.join("\t", name, jar.toString(), key, value(object, setter.substring(3))));
                }
            }
        }
        Files.write(Path.of(arguments[0]), lines);
        Runtime.getRuntime().halt(0); // loggers may have threads
    }

    private static String value(Object object, String name) {
        for (String prefix : new String[] {"get", "is"}) {
            try {
                return String.valueOf(object.getClass().getMethod(prefix + name).invoke(object));
            } catch (ReflectiveOperationException e) {
                continue; // the other prefix, or nothing reads it
            }
        }
        return "?";
    }
}
