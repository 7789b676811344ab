import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools in one JVM, one after another, as a script would: one JSON order a line on
 * stdin ("tool": its main class, "arguments", "stdin"), one JSON line on stdout ("exit_code", "stdout",
 * "stderr"). The arguments are the jars of the tools, whose classes are loaded again for each call.
 */
public final class ToolCalls {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int UNCAUGHT = 1;

    public static void main(String[] jars) throws Exception {
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream results = System.out;
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            results.println(JSON.writeValueAsString(new Call(JSON.readTree(line)).run(jars)));
            results.flush();
        }
    }

    /** One run of a tool. It is over when the tool exits, or returns from its main method. */
    private static final class Call {
        private final String tool;
        private final String[] arguments;
        private final byte[] input;
        private final Output stdout = new Output();
        private final Output stderr = new Output();
        private final List<Runnable> hooks = new ArrayList<>();
        private Set<Thread> hooksBefore;
        private final CompletableFuture<Integer> exitCode = new CompletableFuture<>();

        Call(JsonNode order) {
            tool = order.get("tool").asText();
            arguments = new String[order.get("arguments").size()];
            for (int i = 0; i < arguments.length; i++) {
                arguments[i] = order.get("arguments").get(i).asText();
            }
            input = order.get("stdin").asText().getBytes(StandardCharsets.UTF_8);
        }

        ObjectNode run(String[] jars) throws Exception {
            System.setIn(new ByteArrayInputStream(input));
            System.setOut(new PrintStream(stdout, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(stderr, true, StandardCharsets.UTF_8));
            Exit.setExitProcedure((code, message) -> leave(code));
            Exit.setHaltProcedure((code, message) -> leave(code));
            Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
            hooksBefore = hooksOfJvm();
            try (URLClassLoader classes = new OwnFirst(jars)) {
                Thread main = new Thread(() -> runMain(classes), "main");
                main.setContextClassLoader(classes);
                main.start();
                int code = exitCode.get();
                ObjectNode result = JSON.createObjectNode()
                    .put("exit_code", code)
                    .put("stdout", stdout.text())
                    .put("stderr", stderr.text());
                // What the tool would do after its exit, but for the unwinding of its clients, does not happen.
                main.join();
                return result;
            }
        }

        private void runMain(ClassLoader classes) {
            try {
                Class.forName(tool, true, classes).getMethod("main", String[].class).invoke(null, (Object) arguments);
                finish(0);
            } catch (InvocationTargetException thrown) {
                if (!(thrown.getCause() instanceof Exited)) {
                    System.err.print("Exception in thread \"main\" ");
                    thrown.getCause().printStackTrace();
                    finish(UNCAUGHT);
                }
            } catch (ReflectiveOperationException noTool) {
                exitCode.completeExceptionally(noTool);
            }
        }

        /** In place of the end of the JVM: nothing after it is seen, and the calling thread does not return. */
        private void leave(int code) {
            finish(code);
            throw new Exited();
        }

        private synchronized void finish(int code) {
            if (exitCode.isDone()) {
                return;
            }
            hooks.forEach(Runnable::run);
            for (Thread hook : hooksOfJvm()) {
                if (!hooksBefore.contains(hook)) {
                    Runtime.getRuntime().removeShutdownHook(hook);
                    hook.run();
                }
            }
            stdout.close();
            stderr.close();
            exitCode.complete(code);
        }
    }

    /** Some tools register theirs without Kafka's Exit. Needs `--add-opens java.base/java.lang=ALL-UNNAMED`. */
    private static Set<Thread> hooksOfJvm() {
        try {
            Field hooks = Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks");
            hooks.setAccessible(true);
            return new HashSet<>(((Map<?, ?>) hooks.get(null)).keySet().stream().map(Thread.class::cast).toList());
        } catch (ReflectiveOperationException other) {
            throw new IllegalStateException(other);
        }
    }

    /** Unwinds a tool that has exited. */
    private static final class Exited extends Error {
        private static final long serialVersionUID = 1;
    }

    /** Keeps what is written until it is closed. */
    private static final class Output extends OutputStream {
        private final ByteArrayOutputStream written = new ByteArrayOutputStream();
        private boolean closed;

        @Override
        public synchronized void write(int one) {
            if (!closed) {
                written.write(one);
            }
        }

        @Override
        public synchronized void write(byte[] bytes, int start, int count) {
            if (!closed) {
                written.write(bytes, start, count);
            }
        }

        @Override
        public synchronized void close() {
            closed = true;
        }

        synchronized String text() {
            return written.toString(StandardCharsets.UTF_8);
        }
    }

    /** Loads the classes of the tools, with their static fields, for one call; all others are shared. */
    private static final class OwnFirst extends URLClassLoader {
        OwnFirst(String[] jars) throws MalformedURLException {
            super(urls(jars), ToolCalls.class.getClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            synchronized (getClassLoadingLock(name)) {
                Class<?> found = findLoadedClass(name);
                if (found == null) {
                    found = isOwn(name) ? findClass(name) : super.loadClass(name, false);
                }
                return found;
            }
        }

        private boolean isOwn(String name) {
            return findResource(name.replace('.', '/') + ".class") != null;
        }

        private static URL[] urls(String[] jars) throws MalformedURLException {
            URL[] urls = new URL[jars.length];
            for (int i = 0; i < jars.length; i++) {
                urls[i] = new File(jars[i]).toURI().toURL();
            }
            return urls;
        }
    }
}
