package projection

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall/rollcall/internal/realtest"
)

const testMeta = "rc:{00}:meta:test"

// claimed makes the meta key of a shard that epoch e1 holds at offset 0.
func claimed(t *testing.T, rdb *redis.Client) {
	t.Helper()
	if err := claimScript.Run(t.Context(), rdb, []string{testMeta}, "e1", "journal", 0).Err(); err != nil {
		t.Fatal(err)
	}
}

// send commits from offset to offset, with the words of one write after another, split at "|".
func send(ctx context.Context, rdb *redis.Client, epoch string, from, to int, writes string) error {
	args := []any{epoch, from, to, "sum", 1}
	for w := range strings.SplitSeq(writes, "|") {
		words := strings.Fields(w)
		if len(words) == 0 {
			continue
		}
		args = append(args, len(words))
		for _, word := range words {
			args = append(args, word)
		}
	}
	return commitScript.Run(ctx, rdb, []string{testMeta}, args...).Err()
}

func wantErr(t *testing.T, err error, prefix string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), prefix) {
		t.Fatalf("got %v, want %s …", err, prefix)
	}
}

func wantKey(t *testing.T, rdb *redis.Client, key, want string) {
	t.Helper()
	got, err := rdb.Get(t.Context(), key).Result()
	if err != nil && err != redis.Nil {
		t.Fatal(err)
	}
	if got != want {
		t.Fatalf("%s is %q, want %q", key, got, want)
	}
}

func wantMeta(t *testing.T, rdb *redis.Client, field, want string) {
	t.Helper()
	got, err := rdb.HGet(t.Context(), testMeta, field).Result()
	if err != nil && err != redis.Nil {
		t.Fatal(err)
	}
	if got != want {
		t.Fatalf("meta %s is %q, want %q", field, got, want)
	}
}

func TestCommitIsConditional(t *testing.T) {
	rdb := realtest.Redis(t).Client()
	claimed(t, rdb)
	if err := send(t.Context(), rdb, "e1", 0, 7, "INCR rc:{00}:a | INCR rc:{00}:a"); err != nil {
		t.Fatal(err)
	}
	wantKey(t, rdb, "rc:{00}:a", "2")
	wantMeta(t, rdb, "offset", "7")
	wantErr(t, send(t.Context(), rdb, "e1", 0, 7, "INCR rc:{00}:a"), "OFFSET is 7")
	wantErr(t, send(t.Context(), rdb, "e0", 7, 9, "INCR rc:{00}:a"), "EPOCH is e1")
	wantKey(t, rdb, "rc:{00}:a", "2")
	if err := claimScript.Run(t.Context(), rdb, []string{testMeta}, "e2", "journal", 0).Err(); err != nil {
		t.Fatal(err)
	}
	wantErr(t, send(t.Context(), rdb, "e1", 7, 9, "INCR rc:{00}:a"), "EPOCH is e2")
	if err := send(t.Context(), rdb, "e2", 7, 9, ""); err != nil {
		t.Fatal("moving the offset up without writes:", err)
	}
	wantMeta(t, rdb, "offset", "9")
	// 2^53 + 1 and its neighbour are different offsets.
	if err := send(t.Context(), rdb, "e2", 9, 9007199254740993, ""); err != nil {
		t.Fatal(err)
	}
	wantErr(t, send(t.Context(), rdb, "e2", 9007199254740992, 9007199254740995, ""), "OFFSET is 9007199254740993")
}

// What passes through the script keeps its digits: Redis adds, Lua does not.
func TestRD11_BigNumbersThroughTheScript(t *testing.T) {
	ctx, rdb := t.Context(), realtest.Redis(t).Client()
	claimed(t, rdb)
	if err := rdb.Set(ctx, "rc:{00}:pv", "9007199254740992", 0).Err(); err != nil {
		t.Fatal(err)
	}
	const id, text = "1234567890123456789", `{"v":12345678901234567}`
	if err := send(ctx, rdb, "e1", 0, 1, "INCRBY rc:{00}:pv 1 | SADD rc:{00}:ids "+id+" | SET rc:{00}:json "+text+" | INCRBY rc:{00}:big 9007199254740993"); err != nil {
		t.Fatal(err)
	}
	wantKey(t, rdb, "rc:{00}:pv", "9007199254740993")
	wantKey(t, rdb, "rc:{00}:big", "9007199254740993")
	wantKey(t, rdb, "rc:{00}:json", text)
	if got := rdb.SMembers(ctx, "rc:{00}:ids").Val(); len(got) != 1 || got[0] != id {
		t.Errorf("ids %q, want %s", got, id)
	}
	// Offset, sum and the time as they are sent, and as claim returns them.
	if err := commitScript.Run(ctx, rdb, []string{testMeta}, "e1", "1", "9007199254740993", "1234567890123456789", "1796081400123").Err(); err != nil {
		t.Fatal(err)
	}
	wantMeta(t, rdb, "asof", "1796081400123")
	reply, err := claimScript.Run(ctx, rdb, []string{testMeta}, "e2", "journal", 0).Slice()
	if err != nil || len(reply) != 5 || reply[1] != "9007199254740993" || reply[2] != "1234567890123456789" {
		t.Errorf("claimed %v, %v; want offset 9007199254740993 and sum 1234567890123456789", reply, err)
	}
}

func TestClaimRefusesAnotherJournal(t *testing.T) {
	rdb := realtest.Redis(t).Client()
	claimed(t, rdb)
	reply, err := claimScript.Run(t.Context(), rdb, []string{testMeta}, "e2", "another", 0).Slice()
	if err != nil {
		t.Fatal(err)
	}
	if reply[0] != int64(0) || reply[3] != "journal" {
		t.Fatalf("got %v, want not claimed, written from journal", reply)
	}
	wantMeta(t, rdb, "epoch", "e1")
}

// A write that fails inside a commit can't be undone, so the shard stops at once and says so, and nothing is counted on top of it.
func TestRD06_FailedWriteStopsTheShard(t *testing.T) {
	rdb := realtest.Redis(t).Client()
	claimed(t, rdb)
	if err := rdb.Set(t.Context(), "rc:{00}:board", "no board", 0).Err(); err != nil {
		t.Fatal(err)
	}
	err := send(t.Context(), rdb, "e1", 0, 1, "INCR rc:{00}:pv | ZINCRBY rc:{00}:board 1 u | INCR rc:{00}:pv")
	wantErr(t, err, "DIRTY ZINCRBY rc:{00}:board: WRONGTYPE")
	if !strings.Contains(commitError(testMeta, err).Error(), "rebuild") {
		t.Fatalf("no remedy in %q", commitError(testMeta, err))
	}
	wantKey(t, rdb, "rc:{00}:pv", "1")
	wantMeta(t, rdb, "offset", "0")
	// The retry that every naive client would send changes nothing.
	wantErr(t, send(t.Context(), rdb, "e1", 0, 1, "INCR rc:{00}:pv"), "DIRTY")
	wantKey(t, rdb, "rc:{00}:pv", "1")
	reply, err := claimScript.Run(t.Context(), rdb, []string{testMeta}, "e2", "journal", 0).Slice()
	if err != nil || reply[0] != int64(0) {
		t.Fatalf("a dirty shard was claimed: %v %v", reply, err)
	}
}

// Under memory pressure a commit is refused as a whole, whatever its commands are, and goes through later.
func TestRD04_CommitUnderMemoryPressure(t *testing.T) {
	rdb := realtest.Redis(t).Client()
	claimed(t, rdb)
	if err := rdb.Set(t.Context(), "rc:{00}:old", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	limit := func(v string) {
		t.Helper()
		if err := rdb.ConfigSet(t.Context(), "maxmemory", v).Err(); err != nil {
			t.Fatal(err)
		}
	}
	limit("1")
	for _, writes := range []string{"INCR rc:{00}:pv", "DEL rc:{00}:old | INCR rc:{00}:pv"} {
		wantErr(t, send(t.Context(), rdb, "e1", 0, 1, writes), "OOM")
		wantKey(t, rdb, "rc:{00}:pv", "")
		wantKey(t, rdb, "rc:{00}:old", "x")
		wantMeta(t, rdb, "dirty", "")
		wantMeta(t, rdb, "offset", "0")
	}
	limit("0")
	if err := send(t.Context(), rdb, "e1", 0, 1, "DEL rc:{00}:old | INCR rc:{00}:pv"); err != nil {
		t.Fatal(err)
	}
	wantKey(t, rdb, "rc:{00}:pv", "1")
}

func TestCommitOnAReplicaChangesNothing(t *testing.T) {
	master := realtest.Redis(t)
	claimed(t, master.Client())
	replica := realtest.Redis(t)
	replica.ReplicaOf(master)
	replica.WaitInSync(master)
	wantErr(t, send(t.Context(), replica.Client(), "e1", 0, 1, "INCR rc:{00}:pv"), "READONLY")
	wantKey(t, replica.Client(), "rc:{00}:pv", "")
	wantMeta(t, replica.Client(), "dirty", "")
}

// A commit of the largest batch has far more words than Lua can unpack at once.
func TestCommitOfManyWrites(t *testing.T) {
	rdb := realtest.Redis(t).Client()
	claimed(t, rdb)
	if err := send(t.Context(), rdb, "e1", 0, 1, strings.Repeat("INCR rc:{00}:pv | PFADD rc:{00}:uv "+strings.Repeat("u ", 500)+"|", 100)); err != nil {
		t.Fatal(err)
	}
	wantKey(t, rdb, "rc:{00}:pv", "100")
}

// A Redis whose append-only file was cut inside a commit may replay the torn half at the load after the next (see commit.lua). The
// next commit must then be refused; what is counted twice must never pass in silence.
func TestTornCommitReplayedByRedis(t *testing.T) {
	noticed := 0
	for cut := int64(5); cut < 400; cut += 30 {
		s := realtest.Redis(t, "appendfsync always")
		rdb := s.Client()
		claimed(t, rdb)
		const write = "INCRBY rc:{00}:pv 100"
		commit := func(from, to int) error { return send(t.Context(), rdb, "e1", from, to, write) }
		if err := errors.Join(commit(0, 1), commit(1, 2), commit(2, 3)); err != nil {
			t.Fatal(err)
		}
		s.Kill()
		s.CutAOF(cut)
		s.Start()
		offset, err := rdb.HGet(t.Context(), testMeta, "offset").Int()
		if err != nil {
			t.Fatal(err)
		}
		wantKey(t, rdb, "rc:{00}:pv", strconv.Itoa(offset*100))
		if err := commit(offset, offset+1); err != nil {
			t.Fatal(err)
		}
		s.Kill()
		s.Start()
		if err := commit(offset+1, offset+2); err != nil {
			wantErr(t, err, "DIRTY a torn commit was replayed")
			reply, err := claimScript.Run(t.Context(), rdb, []string{testMeta}, "e2", "journal", 0).Slice()
			if err != nil || reply[0] != int64(0) {
				t.Fatalf("cut %d: claimed: %v %v", cut, reply, err)
			}
			noticed++
			continue
		}
		wantKey(t, rdb, "rc:{00}:pv", strconv.Itoa((offset+2)*100))
	}
	t.Log("torn commits replayed by this Redis, and refused:", noticed)
}
