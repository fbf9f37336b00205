import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.ToIntFunction;
import software.amazon.event.ruler.GenericMachine;

/** Matching by event-ruler. Arguments: file of rules and messages, seconds. */
public final class MatchRules {
    private static final int CHECKED = 500;
    private static final int AT_ONCE = 100;
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        JsonNode given = JSON.readTree(new File(arguments[0]));
        long limit = (long) (Double.parseDouble(arguments[1]) * 1e9);
        var machine = new GenericMachine<Integer>();
        int last = given.get("rules").size() - 1;
        for (int number = 0; number < last; number++) {
            machine.addRule(number, pattern(given.get("rules").get(number).get("when")));
        }
        List<String> messages = new ArrayList<>();
        given.get("messages").forEach(message -> messages.add(message.toString()));
        ToIntFunction<String> first = message -> first(machine, message, last);
        int[] answers = messages.stream().limit(CHECKED).mapToInt(first).toArray();
        asked(first, messages, System.nanoTime() + limit);
        long began = System.nanoTime();
        long done = 0;
        while (System.nanoTime() < began + limit) {
            done += asked(first, messages, began + limit);
        }
        double speed = done / ((System.nanoTime() - began) / 1e9);
        System.out.println(JSON.writeValueAsString(Map.of("per_second", speed, "first", answers)));
    }

    private static int first(GenericMachine<Integer> machine, String message, int last) {
        try {
            int least = last;
            for (int rule : machine.rulesForJSONEvent(message)) {
                least = Math.min(least, rule);
            }
            return least;
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    /** Finds the rules of messages until the time is over, and counts them. */
    private static int asked(ToIntFunction<String> first, List<String> messages, long end) {
        for (int begin = 0; begin < messages.size(); begin += AT_ONCE) {
            if (System.nanoTime() > end) {
                return begin;
            }
            for (String message : messages.subList(begin, Math.min(begin + AT_ONCE, messages.size()))) {
                first.applyAsInt(message);
            }
        }
        return messages.size();
    }

    /** A rule in event-ruler's form. */
    private static String pattern(JsonNode when) {
        ObjectNode fields = JSON.createObjectNode();
        for (var it : when.properties()) {
            String text = it.getValue().asText();
            if (text.contains("*")) {
                fields.putArray(it.getKey()).addObject().put("wildcard", text);
            } else {
                fields.putArray(it.getKey()).add(text);
            }
        }
        return fields.toString();
    }
}
