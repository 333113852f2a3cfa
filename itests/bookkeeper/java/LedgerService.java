import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.RackawareEnsemblePlacementPolicy;
import org.apache.bookkeeper.client.api.CreateBuilder;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LastConfirmedAndEntry;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteAdvHandle;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.util.AvailabilityOfEntriesOfLedger;

/**
 * Apache's client behind a pipe: one command a line on standard input, as JSON with "id" and "do"; one answer a line on standard
 * output, as JSON after "boki: ", with the same id and either "found" or "error" (a class name) and "message". Commands run side by
 * side. The argument is the metadata address; there is one client for each protocol, made when it is first named.
 *
 * Ledgers are placed on the bookies that the command names, and a bookie that fails is replaced by the one named as spare.
 */
public final class LedgerService {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUTPUT = System.out;
    private static final int BATCH_BYTES = 1 << 20;

    private final String metadata;
    private final Map<String, BookKeeper> clients = new HashMap<>();
    private final Map<Long, WriteHandle> writers = new ConcurrentHashMap<>();
    private final Map<Long, WriteAdvHandle> advancedWriters = new ConcurrentHashMap<>();
    private final Map<Long, ReadHandle> readers = new ConcurrentHashMap<>();
    private final AtomicLong handles = new AtomicLong();

    private LedgerService(String metadata) {
        this.metadata = metadata;
    }

    /** Takes the bookies from the custom metadata of the ledger. */
    public static final class ChosenBookies extends RackawareEnsemblePlacementPolicy {
        @Override
        public PlacementResult<List<BookieId>> newEnsemble(int size, int writeQuorum, int ackQuorum, Map<String, byte[]> custom,
                Set<BookieId> excluded) throws BKException.BKNotEnoughBookiesException {
            byte[] chosen = custom.get("bookies");
            if (chosen == null) {
                return super.newEnsemble(size, writeQuorum, ackQuorum, custom, excluded);
            }
            List<BookieId> ensemble = new ArrayList<>();
            for (String id : text(chosen).split(",")) {
                ensemble.add(BookieId.parse(id));
            }
            return PlacementResult.of(ensemble, PlacementPolicyAdherence.MEETS_STRICT);
        }

        @Override
        public PlacementResult<BookieId> replaceBookie(int size, int writeQuorum, int ackQuorum, Map<String, byte[]> custom,
                List<BookieId> current, BookieId failed, Set<BookieId> excluded) throws BKException.BKNotEnoughBookiesException {
            byte[] spare = custom.get("spare");
            if (spare == null) {
                return super.replaceBookie(size, writeQuorum, ackQuorum, custom, current, failed, excluded);
            }
            BookieId other = BookieId.parse(text(spare));
            if (current.contains(other) || excluded.contains(other)) {
                throw new BKException.BKNotEnoughBookiesException();
            }
            return PlacementResult.of(other, PlacementPolicyAdherence.MEETS_STRICT);
        }
    }

    public static void main(String[] args) throws Exception {
        LedgerService service = new LedgerService(args[0]);
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        say(JSON.createObjectNode().put("id", 0));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode command = JSON.readTree(line);
            threads.execute(() -> service.answer(command));
        }
        Runtime.getRuntime().halt(0); // the clients' threads would keep the process alive
    }

    private void answer(JsonNode command) {
        ObjectNode answer = JSON.createObjectNode().put("id", command.get("id").asLong());
        try {
            answer.set("found", JSON.valueToTree(run(command)));
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            answer.put("error", cause.getClass().getSimpleName()).put("message", String.valueOf(cause.getMessage()));
        }
        say(answer);
    }

    private static synchronized void say(ObjectNode answer) {
        OUTPUT.println("boki: " + answer);
        OUTPUT.flush();
    }

    private Object run(JsonNode command) throws Exception {
        return switch (command.get("do").asText()) {
            case "create" -> create(command);
            case "append" -> append(command);
            case "append at" -> appendAt(command);
            case "force" -> writer(command).force().get();
            case "close" -> close(command);
            case "open" -> open(command);
            case "read" -> entries(command, false);
            case "read unconfirmed" -> entries(command, true);
            case "read lac" -> reader(command).readLastAddConfirmed();
            case "read explicit lac" -> ((LedgerHandle) reader(command)).readExplicitLastConfirmed();
            case "poll" -> poll(command);
            case "delete" -> delete(command);
            case "held" -> held(command);
            case "bookie info" -> bookieInfo(command);
            default -> throw new IllegalArgumentException("no such command: " + command);
        };
    }

    private Object create(JsonNode command) throws Exception {
        Map<String, byte[]> custom = new HashMap<>();
        for (String name : List.of("bookies", "spare")) {
            if (command.has(name)) {
                custom.put(name, command.get(name).asText().getBytes(StandardCharsets.UTF_8));
            }
        }
        EnumSet<WriteFlag> flags = command.path("deferred").asBoolean() ? EnumSet.of(WriteFlag.DEFERRED_SYNC) : WriteFlag.NONE;
        CreateBuilder creation = client(command).newCreateLedgerOp().withEnsembleSize(3).withWriteQuorumSize(3)
            .withAckQuorumSize(2).withDigestType(digest(command)).withPassword(password(command)).withCustomMetadata(custom)
            .withWriteFlags(flags);
        if (command.path("advanced").asBoolean()) {
            WriteAdvHandle ledger = creation.makeAdv().execute().get();
            advancedWriters.put(ledger.getId(), ledger);
            return ledger.getId();
        }
        WriteHandle ledger = creation.execute().get();
        writers.put(ledger.getId(), ledger);
        return ledger.getId();
    }

    private Object append(JsonNode command) throws Exception {
        WriteHandle ledger = writer(command);
        List<CompletableFuture<Long>> appends = new ArrayList<>();
        for (JsonNode entry : command.get("entries")) {
            appends.add(ledger.appendAsync(entry.asText().getBytes(StandardCharsets.UTF_8)));
        }
        long last = -1;
        for (CompletableFuture<Long> append : appends) {
            last = append.get();
        }
        return last;
    }

    /** Entries whose ids the caller names, as pairs of id and text. */
    private Object appendAt(JsonNode command) throws Exception {
        WriteAdvHandle ledger = advancedWriters.get(command.get("ledger").asLong());
        List<CompletableFuture<Long>> appends = new ArrayList<>();
        for (JsonNode entry : command.get("entries")) {
            appends.add(ledger.writeAsync(entry.get(0).asLong(), entry.get(1).asText().getBytes(StandardCharsets.UTF_8)));
        }
        for (CompletableFuture<Long> append : appends) {
            append.get();
        }
        return ledger.getLastAddConfirmed();
    }

    private Object close(JsonNode command) throws Exception {
        WriteAdvHandle advanced = advancedWriters.remove(command.get("ledger").asLong());
        if (advanced != null) {
            advanced.close();
            return advanced.getLastAddConfirmed();
        }
        WriteHandle ledger = writers.remove(command.get("ledger").asLong());
        ledger.close();
        return ledger.getLastAddConfirmed();
    }

    private Object open(JsonNode command) throws Exception {
        ReadHandle ledger = client(command).newOpenLedgerOp().withLedgerId(command.get("ledger").asLong())
            .withDigestType(digest(command)).withPassword(password(command)).withRecovery(command.get("recover").asBoolean())
            .execute().get();
        long handle = handles.incrementAndGet();
        readers.put(handle, ledger);
        return Map.of("handle", handle, "last", ledger.getLastAddConfirmed(), "closed", ledger.isClosed());
    }

    private Object entries(JsonNode command, boolean unconfirmed) throws Exception {
        ReadHandle ledger = reader(command);
        long first = command.get("first").asLong();
        long last = command.get("last").asLong();
        List<String> found = new ArrayList<>();
        while (first <= last) {
            int count = (int) (last - first + 1);
            boolean batch = command.path("batch").asBoolean();
            try (LedgerEntries entries = batch ? ledger.batchRead(first, count, BATCH_BYTES)
                    : unconfirmed ? ledger.readUnconfirmed(first, last) : ledger.read(first, last)) {
                for (LedgerEntry entry : entries) {
                    found.add(text(entry.getEntryBytes()));
                    first = entry.getEntryId() + 1;
                }
            }
        }
        return found;
    }

    private Object poll(JsonNode command) throws Exception {
        try (LastConfirmedAndEntry found = reader(command).readLastAddConfirmedAndEntry(command.get("entry").asLong(),
                command.get("wait_ms").asLong(), false)) {
            Map<String, Object> answer = new HashMap<>();
            answer.put("lac", found.getLastAddConfirmed());
            answer.put("entry", found.hasEntry() ? text(found.getEntry().getEntryBytes()) : null);
            return answer;
        }
    }

    private Object delete(JsonNode command) throws Exception {
        return client(command).newDeleteLedgerOp().withLedgerId(command.get("ledger").asLong()).execute().get();
    }

    private Object held(JsonNode command) throws Exception {
        try (BookKeeperAdmin admin = new BookKeeperAdmin(client(command))) {
            AvailabilityOfEntriesOfLedger held = admin.asyncGetListOfEntriesOfLedger(
                BookieId.parse(command.get("bookie").asText()), command.get("ledger").asLong()).get();
            List<Long> entries = new ArrayList<>();
            for (long entry = 0; entries.size() < held.getTotalNumOfAvailableEntries(); entry++) {
                if (held.isEntryAvailable(entry)) {
                    entries.add(entry);
                }
            }
            return entries;
        }
    }

    private Object bookieInfo(JsonNode command) throws Exception {
        ObjectNode found = JSON.createObjectNode();
        client(command).getBookieInfo().forEach((bookie, info) -> {
            ArrayNode space = found.putArray(bookie.toString());
            space.add(info.getFreeDiskSpace()).add(info.getTotalDiskSpace());
        });
        return found;
    }

    private synchronized BookKeeper client(JsonNode command) throws Exception {
        String protocol = command.get("protocol").asText();
        if (!clients.containsKey(protocol)) {
            ClientConfiguration settings = new ClientConfiguration();
            settings.setMetadataServiceUri(metadata);
            settings.setUseV2WireProtocol(protocol.equals("v2"));
            settings.setBatchReadEnabled(protocol.equals("v2"));
            settings.setZkTimeout(4_000);
            settings.setEnsemblePlacementPolicy(ChosenBookies.class);
            if (protocol.equals("v3 with explicit LAC")) {
                settings.setExplictLacInterval(50);
            }
            clients.put(protocol, new BookKeeper(settings));
        }
        return clients.get(protocol);
    }

    private WriteHandle writer(JsonNode command) {
        return writers.get(command.get("ledger").asLong());
    }

    private ReadHandle reader(JsonNode command) {
        return readers.get(command.get("handle").asLong());
    }

    private static DigestType digest(JsonNode command) {
        return DigestType.valueOf(command.get("digest").asText());
    }

    private static byte[] password(JsonNode command) {
        return command.get("password").asText().getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
