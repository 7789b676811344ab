// Reads lines "pattern TAB text", and prints for each "true", "false" or "error": what RE2/J, which Kafka matches
// regular expressions of clients with, says about the whole text.

import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

public class PatternCalls {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = in.readLine()) != null) {
            String[] fields = line.split("\t", -1);
            out.println(answer(fields[0], fields[1]));
        }
        out.flush();
    }

    private static String answer(String pattern, String text) {
        try {
            return Boolean.toString(Pattern.compile(pattern).matcher(text).matches());
        } catch (PatternSyntaxException error) {
            return "error";
        }
    }
}
