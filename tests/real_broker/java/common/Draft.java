import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/** A message as a broker hands it to its store, filled in step by step. */
final class Draft {
    static final SocketAddress PRODUCER = new InetSocketAddress("192.0.2.17", 43210);
    static final SocketAddress BROKER = new InetSocketAddress("192.0.2.1", 10911);

    final MessageExt message = Family.message();

    private Draft(String topic, int queue) {
        message.setTopic(topic);
        message.setQueueId(queue);
        message.setBornTimestamp(System.currentTimeMillis() - 3);
        message.setBornHost(PRODUCER);
        message.setStoreHost(BROKER);
        message.setBody(new byte[0]);
    }

    static Draft to(String topic, int queue) {
        return new Draft(topic, queue);
    }

    Draft body(String text) {
        return body(text.getBytes(StandardCharsets.UTF_8));
    }

    Draft body(byte[] body) {
        message.setBody(body);
        return this;
    }

    Draft tags(String tags) {
        return property("TAGS", tags);
    }

    Draft keys(String keys) {
        return property("KEYS", keys);
    }

    Draft unique(int number) {
        return property("UNIQ_KEY", uniqueKey(number)).property("WAIT", "true");
    }

    /** Set a property as a client would; null or empty means none. */
    Draft property(String name, String value) {
        if (value != null && !value.isEmpty()) {
            MessageAccessor.putProperty(message, name, value);
        }
        return this;
    }

    Draft flag(int flag) {
        message.setFlag(flag);
        return this;
    }

    Draft sysFlag(int bits) {
        message.setSysFlag(message.getSysFlag() | bits);
        return this;
    }

    Draft prepared(long offset) {
        message.setPreparedTransactionOffset(offset);
        return this;
    }

    Draft reconsumed(int times) {
        message.setReconsumeTimes(times);
        return this;
    }

    Draft born(String address) {
        message.setBornHost(new InetSocketAddress(address, 43210));
        return this;
    }

    Draft stored(String address) {
        message.setStoreHost(new InetSocketAddress(address, 10911));
        return this;
    }

    /** The form of a client's id: address, process, class loader, time, counter; here only the counter moves. */
    static String uniqueKey(int number) {
        return String.format("C0000211%04X18B4AAC2%08X%04X", 4242, 86_400_000 + number / 7, number & 0xffff);
    }
}
