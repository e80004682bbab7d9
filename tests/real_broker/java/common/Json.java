import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.util.LinkedHashMap;
import java.util.Map;

/** Maps in the order they were filled, and their JSON. */
final class Json {
    private Json() {
    }

    static Map<String, Object> object(Object... namesAndValues) {
        Map<String, Object> object = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            object.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return object;
    }

    static byte[] bytes(Object value) {
        return JSON.toJSONBytes(value, SerializerFeature.DisableCircularReferenceDetect,
            SerializerFeature.WriteMapNullValue);
    }
}
