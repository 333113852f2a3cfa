import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * Closed loops on one ledger through Apache's client, one after another as a driver asks on standard input: a JSON object a line,
 * answered by one a line after "boki: ". Each completion issues the next operation; a latency runs from the call to the callback.
 * The first part of a loop (warm_s) is not measured. Processor time is user and system time of this process and of the bookies.
 *
 *   adds      metadata, size, outstanding, warm_s, seconds, bookies (pids)
 *   fill      metadata, size, entries                   answers with a ledger, for:
 *   reads     metadata, ledger, batch, outstanding, ... batch 1: random single reads; else batch reads in order
 *   recover   metadata, ledger                          how long opening with recovery takes
 *   delete    metadata, ledger
 */
public final class LedgerBench {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final byte[] PASSWORD = new byte[0];
    private static final int BATCH_BYTES = 4 << 20;
    private static final int SAMPLES = 1 << 21;

    private final Map<String, BookKeeper> clients = new HashMap<>();
    private final Map<Long, ReadHandle> readers = new HashMap<>();

    private LedgerBench() {}

    public static void main(String[] args) throws Exception {
        LedgerBench bench = new LedgerBench();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode command = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode().put("id", command.get("id").asLong());
            try {
                answer.set("found", JSON.valueToTree(bench.run(command)));
            } catch (Exception error) {
                error.printStackTrace();
                answer.put("error", error.getClass().getSimpleName()).put("message", withCauses(error));
            }
            System.out.println("boki: " + answer);
            System.out.flush();
        }
        Runtime.getRuntime().halt(0); // the clients' threads would keep the process alive
    }

    private static String withCauses(Throwable error) {
        return error.getCause() == null ? String.valueOf(error) : error + ", because: " + withCauses(error.getCause());
    }

    private Object run(JsonNode command) throws Exception {
        return switch (command.get("do").asText()) {
            case "adds" -> adds(command);
            case "fill" -> fill(command);
            case "reads" -> reads(command);
            case "recover" -> recover(command);
            case "delete" -> {
                readers.remove(command.get("ledger").asLong());
                yield client(command).newDeleteLedgerOp().withLedgerId(command.get("ledger").asLong()).execute().get();
            }
            default -> throw new IllegalArgumentException("no such command: " + command);
        };
    }

    /** One closed loop. An operation completes with how many entries it moved. */
    private static final class Loop {
        private final Supplier<CompletableFuture<Integer>> operation;
        private final long[] taken = new long[SAMPLES];
        private final AtomicInteger samples = new AtomicInteger();
        private final AtomicLong moved = new AtomicLong();
        private final CountDownLatch ended;
        private volatile boolean running = true;
        private volatile boolean measuring;
        private volatile Throwable failure;

        Loop(int outstanding, Supplier<CompletableFuture<Integer>> operation) {
            this.operation = operation;
            ended = new CountDownLatch(outstanding);
        }

        private void next() {
            if (!running) {
                ended.countDown();
                return;
            }
            long started = System.nanoTime();
            operation.get().whenComplete((count, error) -> {
                if (error != null) {
                    failure = error;
                    running = false;
                } else if (measuring) {
                    int sample = samples.getAndIncrement();
                    taken[sample % SAMPLES] = System.nanoTime() - started;
                    moved.addAndGet(count);
                }
                next();
            });
        }

        Map<String, Object> measure(JsonNode command) throws Exception {
            for (int i = command.get("outstanding").asInt(); i > 0; i--) {
                next();
            }
            Thread.sleep((long) (command.get("warm_s").asDouble() * 1000));
            long[] before = processorTicks(command.get("bookies"));
            long started = System.nanoTime();
            measuring = true;
            Thread.sleep((long) (command.get("seconds").asDouble() * 1000));
            measuring = false;
            double seconds = (System.nanoTime() - started) / 1e9;
            long[] after = processorTicks(command.get("bookies"));
            running = false;
            boolean drained = ended.await(60, TimeUnit.SECONDS);
            if (failure != null) {
                throw new IllegalStateException("an operation failed, " + samples.get() + " had ended", failure);
            }
            if (!drained || samples.get() == 0) {
                throw new IllegalStateException(ended.getCount() + " operations did not end within 60 s, " + samples.get() + " had ended");
            }
            long[] ordered = Arrays.copyOf(taken, Math.min(samples.get(), SAMPLES));
            Arrays.sort(ordered);
            double[] processor = new double[before.length];
            for (int i = 0; i < before.length; i++) {
                processor[i] = (after[i] - before[i]) * 1e4 / moved.get();
            }
            return Map.of("per_s", moved.get() / seconds, "p50_ms", ordered[ordered.length / 2] / 1e6,
                "p99_ms", ordered[(int) (ordered.length * 0.99)] / 1e6, "cpu_us", processor);
        }
    }

    /** In hundredths of a second: of this process user, system; of all bookies user, system. */
    private static long[] processorTicks(JsonNode bookies) throws Exception {
        long[] ticks = new long[4];
        addTicks(ticks, 0, ProcessHandle.current().pid());
        for (JsonNode pid : bookies) {
            addTicks(ticks, 2, pid.asLong());
        }
        return ticks;
    }

    private static void addTicks(long[] ticks, int at, long pid) throws Exception {
        String stat = Files.readString(Path.of("/proc", Long.toString(pid), "stat"));
        String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
        ticks[at] += Long.parseLong(fields[11]);
        ticks[at + 1] += Long.parseLong(fields[12]);
    }

    private Object adds(JsonNode command) throws Exception {
        byte[] data = randomBytes(command);
        WriteHandle ledger = create(command);
        Object found = new Loop(command.get("outstanding").asInt(), () -> ledger.appendAsync(data).thenApply(entry -> 1)).measure(command);
        ledger.close();
        client(command).newDeleteLedgerOp().withLedgerId(ledger.getId()).execute().get();
        return found;
    }

    private Object fill(JsonNode command) throws Exception {
        byte[] data = randomBytes(command);
        WriteHandle ledger = create(command);
        Semaphore window = new Semaphore(512);
        for (int left = command.get("entries").asInt(); left > 0; left--) {
            window.acquire();
            ledger.appendAsync(data).whenComplete((entry, error) -> window.release());
        }
        window.acquire(512);
        ledger.close();
        readers.put(ledger.getId(), open(command, ledger.getId(), false));
        return ledger.getId();
    }

    private Object reads(JsonNode command) throws Exception {
        ReadHandle ledger = readers.get(command.get("ledger").asLong());
        int batch = command.get("batch").asInt();
        long count = ledger.getLastAddConfirmed() + 1;
        AtomicLong next = new AtomicLong();
        return new Loop(command.get("outstanding").asInt(), () -> {
            long first = batch == 1 ? ThreadLocalRandom.current().nextLong(count) : next.getAndAdd(batch) % (count / batch * batch);
            return (batch == 1 ? ledger.readAsync(first, first) : ledger.batchReadAsync(first, batch, BATCH_BYTES)).thenApply(LedgerBench::counted);
        }).measure(command);
    }

    private static int counted(LedgerEntries entries) {
        int count = 0;
        try (entries) {
            for (LedgerEntry entry : entries) {
                count += entry.getLength() > 0 ? 1 : 0;
            }
        }
        return count;
    }

    private Object recover(JsonNode command) throws Exception {
        long started = System.nanoTime();
        ReadHandle ledger = open(command, command.get("ledger").asLong(), true);
        double seconds = (System.nanoTime() - started) / 1e9;
        long last = ledger.getLastAddConfirmed();
        ledger.close();
        return Map.of("seconds", seconds, "last", last);
    }

    private WriteHandle create(JsonNode command) throws Exception {
        return client(command).newCreateLedgerOp().withEnsembleSize(3).withWriteQuorumSize(3).withAckQuorumSize(2)
            .withDigestType(DigestType.CRC32C).withPassword(PASSWORD).execute().get();
    }

    private ReadHandle open(JsonNode command, long ledger, boolean recover) throws Exception {
        return client(command).newOpenLedgerOp().withLedgerId(ledger).withDigestType(DigestType.CRC32C).withPassword(PASSWORD)
            .withRecovery(recover).execute().get();
    }

    private BookKeeper client(JsonNode command) throws Exception {
        String metadata = command.get("metadata").asText();
        if (!clients.containsKey(metadata)) {
            ClientConfiguration settings = new ClientConfiguration();
            settings.setMetadataServiceUri(metadata);
            settings.setUseV2WireProtocol(true);
            settings.setBatchReadEnabled(true);
            settings.setThrottleValue(0);
            settings.setAddEntryTimeout(30); // with as many bookies as replicas, one late answer ends the ledger
            clients.put(metadata, new BookKeeper(settings));
        }
        return clients.get(metadata);
    }

    private static byte[] randomBytes(JsonNode command) {
        byte[] data = new byte[command.get("size").asInt()];
        new Random(7).nextBytes(data);
        return data;
    }
}
