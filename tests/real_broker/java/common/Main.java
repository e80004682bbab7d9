import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

/** The harness seen from outside: one command per run, results as JSON files, `ready` on the standard output. */
public final class Main {
    private Main() {
    }

    public static void main(String[] arguments) {
        try {
            run(arguments[0], Path.of(arguments[1]), arguments[2]);
            // Store threads that are no daemons must not keep the process.
            Runtime.getRuntime().halt(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(String command, Path root, String argument) throws Exception {
        switch (command) {
            case "write":
                Scenarios.write(root, argument);
                break;
            case "oracle":
                save(Oracle.of(root), Path.of(argument));
                break;
            case "recover":
                save(Oracle.recover(root), Path.of(argument));
                break;
            case "ask":
                Questions.answer(root);
                break;
            case "judge":
                save(Judge.all(root), Path.of(argument));
                break;
            case "clean":
                save(Cleaner.clean(root.resolve("scenarios.json"), root.resolve("disks")), Path.of(argument));
                break;
            case "decode":
                save(ConfigDecoders.decode(root), Path.of(argument));
                break;
            case "expire":
                save(Wipe.clean(root), Path.of(argument));
                break;
            case "destroy":
                save(Wipe.destroy(root), Path.of(argument));
                break;
            case "filter":
                save(RowFilter.run(root), Path.of(argument));
                break;
            case "tiered-write": // classes that are there with the tiered store alone
            case "tiered-kill":
                Class.forName("Tiered").getDeclaredMethod("write", Path.class, String.class, boolean.class)
                    .invoke(null, root, argument, command.equals("tiered-kill"));
                break;
            case "tiered-read":
                @SuppressWarnings("unchecked")
                Map<String, Object> served = (Map<String, Object>) Class.forName("Tiered")
                    .getDeclaredMethod("read", Path.class, String.class).invoke(null, root, argument);
                save(served, Path.of(argument));
                break;
            case "hold":
                Live.hold(root, Integer.parseInt(argument));
                break;
            case "same":
                Live.same(root, Integer.parseInt(argument));
                break;
            case "load":
                Live.load(root, Integer.parseInt(argument));
                break;
            case "fill":
                Durations.fill(root, Integer.parseInt(argument));
                break;
            case "duration":
                save(Durations.load(root), Path.of(argument));
                break;
            default:
                throw new IllegalArgumentException("no such command: " + command);
        }
    }

    /** Tell the parent that the store is up. */
    static void ready() {
        System.out.println("harness: ready");
        System.out.flush();
    }

    private static void save(Map<String, Object> result, Path file) throws Exception {
        Files.write(file, Json.bytes(result));
    }
}
