import java.lang.reflect.Method;
import org.apache.rocketmq.common.UtilAll;

/** Compress a body with the release's own classes. */
final class Compression {
    private static final String PACKAGE = "org.apache.rocketmq.common.compression.";

    private Compression() {
    }

    /** zlib as every release writes it, without a type in the sys flag. */
    static byte[] zlib(byte[] body) throws Exception {
        return UtilAll.compress(body, 5);
    }

    /** A named CompressionType (LZ4, ZSTD, ZLIB) of the releases that know types. */
    static byte[] typed(String type, byte[] body) throws Exception {
        Object compressor = factory().invoke(null, constant(type));
        Method compress = Class.forName(PACKAGE + "Compressor").getMethod("compress", byte[].class, int.class);
        return (byte[]) compress.invoke(compressor, body, 3);
    }

    /** The bits of the sys flag that name `type`. */
    static int flag(String type) throws Exception {
        Object constant = constant(type);
        return (int) constant.getClass().getMethod("getCompressionFlag").invoke(constant);
    }

    private static Method factory() throws Exception {
        Class<?> type = Class.forName(PACKAGE + "CompressionType");
        return Class.forName(PACKAGE + "CompressorFactory").getMethod("getCompressor", type);
    }

    private static Object constant(String type) throws Exception {
        return Class.forName(PACKAGE + "CompressionType").getMethod("valueOf", String.class).invoke(null, type);
    }
}
