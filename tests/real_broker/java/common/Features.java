import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;

/** What the release under test can store; the Python side knows the releases, see versions.py. */
final class Features {
    private static final Set<String> PRESENT =
        new HashSet<>(Arrays.asList(System.getProperty("harness.features", "").split(",")));

    private Features() {
    }

    static boolean has(String feature) {
        return PRESENT.contains(feature);
    }
}
