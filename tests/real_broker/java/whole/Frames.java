import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** What the client's own classes make of a few requests: frames, batches and signatures, in hex. */
final class Frames {
    private static final String[] PACKAGES =
        {"org.apache.rocketmq.common.protocol.header.", "org.apache.rocketmq.remoting.protocol.header."};

    private Frames() {
    }

    static Map<String, Object> all() throws Exception {
        System.setProperty("rocketmq.client.version", "");
        List<Message> messages = new ArrayList<>();
        for (String body : new String[] {"one", "zw\u00f6i"}) {
            Message message = new Message("orders", "web", "K-" + body, body.getBytes(StandardCharsets.UTF_8));
            message.setFlag(7);
            message.putUserProperty("UNIQ_KEY_OF", body);
            messages.add(message);
        }
        RemotingCommand send = RemotingCommand.createRequestCommand(310, header());
        send.setBody("one".getBytes(StandardCharsets.UTF_8));
        RemotingCommand signed = RemotingCommand.createRequestCommand(310, header());
        signed.setBody("one".getBytes(StandardCharsets.UTF_8));
        new AclClientRPCHook(new SessionCredentials("rmqtool", "12345678")).doBeforeRequest("127.0.0.1:1", signed);
        return Json.object("send", hex(send.encode()), "signed", hex(signed.encode()),
            "fields", send.getExtFields(), "signed_fields", signed.getExtFields(),
            "batch", hex(ByteBuffer.wrap(MessageDecoder.encodeMessages(messages))),
            "properties", MessageDecoder.messageProperties2String(messages.get(0).getProperties()));
    }

    private static CommandCustomHeader header() throws Exception {
        CommandCustomHeader header = (CommandCustomHeader) named("SendMessageRequestHeader").getConstructor().newInstance();
        set(header, "producerGroup", "rmqtool");
        set(header, "topic", "orders");
        set(header, "defaultTopic", "orders");
        set(header, "defaultTopicQueueNums", 4);
        set(header, "queueId", 2);
        set(header, "sysFlag", 1);
        set(header, "bornTimestamp", 1700000000123L);
        set(header, "flag", 7);
        set(header, "properties", "KEYS\u0001K-one\u0002TAGS\u0001web\u0002");
        set(header, "reconsumeTimes", 0);
        set(header, "unitMode", false);
        set(header, "batch", false);
        return (CommandCustomHeader) named("SendMessageRequestHeaderV2")
            .getMethod("createSendMessageRequestHeaderV2", header.getClass()).invoke(null, header);
    }

    private static Class<?> named(String name) throws ClassNotFoundException {
        try {
            return Class.forName(PACKAGES[0] + name);
        } catch (ClassNotFoundException moved) {
            return Class.forName(PACKAGES[1] + name);
        }
    }

    private static void set(Object header, String name, Object value) throws Exception {
        Field field = header.getClass().getDeclaredField(name);
        field.setAccessible(true);
        field.set(header, value);
    }

    private static String hex(ByteBuffer bytes) {
        StringBuilder text = new StringBuilder();
        for (ByteBuffer rest = bytes.duplicate(); rest.hasRemaining(); ) {
            text.append(String.format("%02x", rest.get()));
        }
        return text.toString();
    }
}
