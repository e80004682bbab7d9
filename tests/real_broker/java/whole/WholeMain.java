import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;

/** A name server, a broker and clients in one process, on loopback only: `root` takes the store, `facts` what happened. */
public final class WholeMain {
    private WholeMain() {
    }

    public static void main(String[] arguments) {
        if (System.getProperty("tls.server.mode") == null) {
            System.setProperty("tls.server.mode", "disabled"); // or each server makes a certificate, for seconds
        }
        try {
            if (arguments[0].equals("survey")) {
                Files.write(Path.of(arguments[2]), Json.bytes(Survey.all(Path.of(arguments[1]))));
            } else if (arguments[0].equals("pops")) {
                Files.write(Path.of(arguments[2]), Json.bytes(Pops.run(Path.of(arguments[1]),
                    Integer.parseInt(arguments[3]), Boolean.parseBoolean(arguments[4]))));
            } else if (arguments[0].equals("random")) {
                RandomStore.run(Path.of(arguments[1]), Path.of(arguments[2]), arguments[3], arguments[4], arguments[5]);
            } else if (arguments[0].equals("pair")) { // of 5.x only
                Method run = Class.forName("Pair").getDeclaredMethod("run", Path.class);
                run.invoke(null, Path.of(arguments[1]));
            } else if (arguments[0].equals("hold")) {
                Method hold = Class.forName(arguments[2]).getDeclaredMethod("hold", Path.class, int.class);
                hold.invoke(null, Path.of(arguments[1]), Integer.parseInt(arguments[3]));
            } else if (arguments[0].equals("slave")) {
                Slave.run(Path.of(arguments[1]));
            } else if (arguments[0].equals("serve")) {
                Serve.run(Path.of(arguments[1]));
            } else if (arguments[0].equals("frames")) {
                Files.write(Path.of(arguments[1]), Json.bytes(Frames.all()));
            } else if (arguments[0].equals("trade")) {
                Files.write(Path.of(arguments[2]), Json.bytes(Trade.work(Path.of(arguments[1]))));
            } else if (arguments[0].equals("trade-rest")) {
                Files.write(Path.of(arguments[2]),
                    Json.bytes(Trade.rest(Path.of(arguments[1]), Path.of(arguments[3]))));
            } else if (arguments[0].equals("traced")) {
                Files.write(Path.of(arguments[2]), Json.bytes(Traced.run(Path.of(arguments[1]))));
            } else {
                run(Path.of(arguments[0]), Path.of(arguments[1]));
            }
            // Client and broker threads that are no daemons must not keep the process.
            Runtime.getRuntime().halt(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(Path root, Path facts) throws Exception {
        WholeBroker broker = WholeBroker.start(root);
        Shop shop = new Shop(broker);
        shop.declareTopics();
        shop.produce();
        shop.consume();
        shop.close();
        Files.write(facts, Json.bytes(Facts.of(broker, shop)));
        broker.stop();
    }
}
