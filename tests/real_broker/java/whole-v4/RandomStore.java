import java.nio.file.Path;

/** Queues and configuration in RocksDB are of 5.x. */
final class RandomStore {
    private RandomStore() {
    }

    static void run(Path root, Path facts, String... numbers) {
        throw new UnsupportedOperationException("RocksDB is of 5.x");
    }
}
