import java.lang.reflect.Field;
import java.lang.reflect.Method;

/** The few private members of the store classes that the harness has to reach. */
final class Reflection {
    private Reflection() {
    }

    static void set(Object target, String name, Object value) throws ReflectiveOperationException {
        anywhere(target, name).set(target, value);
    }

    static Object get(Object target, String name) throws ReflectiveOperationException {
        return field(target.getClass(), name).get(target);
    }

    /** The value of a field that the class of `target` or one above it has. */
    static Object inherited(Object target, String name) throws ReflectiveOperationException {
        return anywhere(target, name).get(target);
    }

    private static Field anywhere(Object target, String name) throws NoSuchFieldException {
        for (Class<?> type = target.getClass(); type != null; type = type.getSuperclass()) {
            try {
                return field(type, name);
            } catch (NoSuchFieldException above) {
                continue;
            }
        }
        throw new NoSuchFieldException(name);
    }

    /** Call the private method `name` without arguments; false when no class of `target` has one. */
    static boolean call(Object target, String name) throws ReflectiveOperationException {
        for (Class<?> type = target.getClass(); type != null; type = type.getSuperclass()) {
            try {
                Method method = type.getDeclaredMethod(name);
                method.setAccessible(true);
                method.invoke(target);
                return true;
            } catch (NoSuchMethodException above) {
                continue;
            }
        }
        return false;
    }

    private static Field field(Class<?> type, String name) throws NoSuchFieldException {
        Field field = type.getDeclaredField(name);
        field.setAccessible(true);
        return field;
    }
}
