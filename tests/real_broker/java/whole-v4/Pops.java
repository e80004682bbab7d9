import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;

/** POP consumers are of 5.x. */
final class Pops {
    private static final String WHY = "POP consumers are of 5.x";

    Pops(DefaultMQProducer producer) {
        throw new UnsupportedOperationException(WHY);
    }

    static Map<String, Object> run(Path root, int wanted, boolean acknowledges) {
        throw new UnsupportedOperationException(WHY);
    }

    List<MessageExt> pop(int most, long invisibleMs) throws ExecutionException {
        throw new UnsupportedOperationException(WHY);
    }

    void acknowledge(MessageExt message) {
        throw new UnsupportedOperationException(WHY);
    }
}
