import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * One ledger through Apache's client, over PROTOCOL v2 or v3. What it prints on standard output, one fact a line, is for the test:
 *
 *   write URI PROTOCOL DIGEST COUNT close    ledger N, last M                 entries "java 0" ... , all acknowledged, then closed
 *   write URI PROTOCOL DIGEST COUNT leave    ledger N, last M                 the same, left open until standard input ends
 *   read URI PROTOCOL DIGEST LEDGER          last M, then entry TEXT each     of a closed ledger
 *   recover URI PROTOCOL DIGEST LEDGER       the same, fenced and closed first
 *   delete URI PROTOCOL DIGEST LEDGER        deleted N
 */
public final class LedgerProgram {
    private static final byte[] PASSWORD = "key".getBytes();
    private static final String LINE = "boki: ";

    private LedgerProgram() {}

    public static void main(String[] args) throws Exception {
        ClientConfiguration settings = new ClientConfiguration();
        settings.setMetadataServiceUri(args[1]);
        settings.setUseV2WireProtocol(args[2].equals("v2"));
        settings.setZkTimeout(4_000);
        int status = 0;
        try (BookKeeper client = BookKeeper.newBuilder(settings).build()) {
            DigestType digest = DigestType.valueOf(args[3]);
            switch (args[0]) {
                case "write" -> write(client, digest, Integer.parseInt(args[4]), args[5].equals("close"));
                case "read" -> read(client, digest, Long.parseLong(args[4]), false);
                case "recover" -> read(client, digest, Long.parseLong(args[4]), true);
                case "delete" -> {
                    client.newDeleteLedgerOp().withLedgerId(Long.parseLong(args[4])).execute().get();
                    say("deleted " + args[4]);
                }
                default -> throw new IllegalArgumentException("expected write, read, recover or delete, found " + args[0]);
            }
        } catch (Exception error) {
            error.printStackTrace();
            status = 1;
        }
        System.exit(status); // the client's threads would keep the process alive
    }

    private static void write(BookKeeper client, DigestType digest, int count, boolean close) throws Exception {
        WriteHandle ledger = client.newCreateLedgerOp().withEnsembleSize(3).withWriteQuorumSize(3).withAckQuorumSize(2)
            .withDigestType(digest).withPassword(PASSWORD).execute().get();
        List<CompletableFuture<Long>> appends = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            appends.add(ledger.appendAsync(("java " + number).getBytes()));
        }
        for (CompletableFuture<Long> append : appends) {
            append.get();
        }
        say("ledger " + ledger.getId());
        say("last " + ledger.getLastAddConfirmed());
        if (close) {
            ledger.close();
            say("closed");
        } else {
            System.in.read();
        }
    }

    private static void read(BookKeeper client, DigestType digest, long id, boolean recover) throws Exception {
        try (ReadHandle ledger = client.newOpenLedgerOp().withLedgerId(id).withDigestType(digest).withPassword(PASSWORD)
                .withRecovery(recover).execute().get()) {
            long last = ledger.getLastAddConfirmed();
            say("last " + last);
            say("closed " + ledger.isClosed());
            try (LedgerEntries entries = ledger.read(0, last)) {
                for (LedgerEntry entry : entries) {
                    say("entry " + new String(entry.getEntryBytes()));
                }
            }
        }
    }

    private static void say(String fact) {
        System.out.println(LINE + fact);
        System.out.flush();
    }
}
