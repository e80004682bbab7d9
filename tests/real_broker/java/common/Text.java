import java.util.Random;

/** Filler that looks like text, is the same on every run, and repeats itself so that golden stores weigh little. */
final class Text {
    private static final String[] WORDS = ("order paid shipped refund basket voucher customer warehouse courier invoice "
        + "address total currency euro item quantity colour size gift note 订单 支付 退款 客户 état à ñandú 😀").split(" ");

    private final Random random;

    Text(long seed) {
        random = new Random(seed);
    }

    /** Words of at least `length` characters in all. */
    String words(int length) {
        StringBuilder text = new StringBuilder(length + 16);
        for (int word = random.nextInt(WORDS.length); text.length() < length; word++) {
            text.append(WORDS[word % WORDS.length]).append(' ');
        }
        return text.toString();
    }

    /** Bytes that are no UTF-8 and do not compress. */
    byte[] noise(int length) {
        byte[] bytes = new byte[length];
        random.nextBytes(bytes);
        bytes[0] = (byte) 0xff;
        return bytes;
    }

    int upTo(int limit) {
        return random.nextInt(limit);
    }
}
