import java.nio.file.Path;
import java.util.Map;

/** POP consumers are of 5.x. */
final class Pops {
    private Pops() {
    }

    static Map<String, Object> run(Path root, int wanted, boolean acknowledges) {
        throw new UnsupportedOperationException("POP consumers are of 5.x");
    }
}
