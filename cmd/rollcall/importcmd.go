package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rollcall/rollcall/ingest/files"
)

// importFlags are the options of an import.
type importFlags struct {
	format, event, user, ts, value, id string
	props                              []string
	rejects                            string
	batch, inFlight                    int
	patience                           time.Duration
	strict                             bool
}

func importCommand() *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Send a log, a CSV table or NDJSON to a running server",
		Long: "Import sends the events of a file to a running server, as history: they may go back to 1971. Lines that are no event and events that the\n" +
			"server refuses go to FILE.rejects as line number, reason and text. Each event's id is made from the file's base name, the line's number and\n" +
			"its content, so the same import may be run again, after a kill or by mistake: what is there already counts once.",
		Example: "  rollcall import access.log --format combined --event page_view --user addr --prop page=path\n" +
			"  rollcall import ratings.csv --format csv --event rating --user userId --ts timestamp --value rating --prop movie=movieId\n" +
			"  rollcall import events.ndjson --format ndjson",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := newClient(cmd)
			if err != nil {
				return err
			}
			return importFile(cmd, c, args[0], f)
		},
	}
	clientFlags(cmd)
	fs := cmd.Flags()
	fs.StringVar(&f.format, "format", "", "combined (a web server's log), csv (with a header line) or ndjson")
	fs.StringVar(&f.event, "event", "", "name of the events; for csv and ndjson only where the file has none")
	fs.StringVar(&f.user, "user", "", "field that is the user: combined has addr and user; csv has its columns")
	fs.StringVar(&f.ts, "ts", "", "csv: column that is the time")
	fs.StringVar(&f.value, "value", "", "field that is the value")
	fs.StringVar(&f.id, "id", "", "field that is the event id, instead of one made from file, line and content")
	fs.StringArrayVar(&f.props, "prop", nil, "KEY=FIELD: keep a field as a prop; may be repeated")
	fs.StringVar(&f.rejects, "rejects", "", "file for refused lines (default FILE.rejects)")
	fs.IntVar(&f.batch, "batch", 5000, "most events in one request")
	fs.IntVar(&f.inFlight, "in-flight", 4, "requests at a time")
	fs.DurationVar(&f.patience, "retry-for", 10*time.Minute, "how long a batch is tried while the server is away or busy")
	fs.BoolVar(&f.strict, "strict", false, "exit with 1 when a line was refused")
	if err := cmd.MarkFlagRequired("format"); err != nil {
		panic(err)
	}
	return cmd
}

func importFile(cmd *cobra.Command, c *client, path string, f importFlags) error {
	if f.batch < 1 || f.batch > 5000 || f.inFlight < 1 || f.inFlight > 64 {
		return errors.New("--batch takes 1 to 5000, --in-flight 1 to 64")
	}
	src, err := openSource(path, f)
	if err != nil {
		return err
	}
	defer src.Close()
	if f.rejects == "" {
		f.rejects = path + ".rejects"
	}
	if err := mayReplace(f.rejects, src.file); err != nil {
		return err
	}
	rejects := &rejectsFile{path: f.rejects}
	im := &importer{client: c, next: src.Next, reject: rejects.add, batch: f.batch, inFlight: f.inFlight, patience: f.patience}
	began := time.Now()
	bar := newProgress(cmd.ErrOrStderr(), src.size, src.Read, im.read.Load)
	im.note = bar.note
	err = im.run(cmd.Context())
	bar.stop()
	if err = errors.Join(err, rejects.close(err == nil)); err != nil {
		if errors.Is(err, context.Canceled) {
			err = errors.New("interrupted")
		}
		var no *refusal
		if errors.As(err, &no) && im.sum == (summary{}) {
			return err // nothing has begun
		}
		return fmt.Errorf("%w\n%s so far; run the same import again to finish it: nothing counts twice", err, im.sum)
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%s in %s\n", im.sum, time.Since(began).Round(10*time.Millisecond))
	if im.sum.Unknown > 0 {
		fmt.Fprintf(out, "%d of the taken are in the journal but not counted yet: duplicates among them are left out later\n", im.sum.Unknown)
	}
	if im.sum.Rejected > 0 {
		fmt.Fprintf(out, "refused lines are in %s\n", f.rejects)
		if f.strict {
			return errSilent
		}
	}
	return nil
}

func (s summary) String() string {
	return fmt.Sprintf("taken %d, duplicates %d, rejected %d", s.Taken, s.Duplicates, s.Rejected)
}

// rejectsFile is made with the first refused line. One left by an earlier import is replaced, or removed when this one refused nothing.
type rejectsFile struct {
	path string
	f    *os.File
}

// rejectLine is the beginning of what add writes.
var rejectLine = regexp.MustCompile(`^[0-9]+\t[^\t\n]+\t`)

// mayReplace tells whether the rejects may be written to path: where nothing is, or an earlier import's rejects are. Whatever else is
// there, the import's own input above all, is not touched.
func mayReplace(path string, input *os.File) error {
	old, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer old.Close()
	oldInfo, err := old.Stat()
	if err != nil {
		return err
	}
	inInfo, err := input.Stat()
	if err != nil {
		return err
	}
	if os.SameFile(oldInfo, inInfo) {
		return fmt.Errorf("--rejects %s is the file to import: name another", path)
	}
	head := make([]byte, 4096)
	n, err := io.ReadFull(old, head)
	if n == 0 && err == io.EOF {
		return nil
	}
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if !rejectLine.Match(head[:n]) {
		return fmt.Errorf("%s is there already and holds no refused lines of an import: move it away, or name another file with --rejects", path)
	}
	return nil
}

const maxRejectText = 64 << 10 // bytes of a line that are kept

func (r *rejectsFile) add(row files.Row) (err error) {
	if r.f == nil {
		if r.f, err = os.Create(r.path); err != nil {
			return err
		}
	}
	text := row.Text[:min(len(row.Text), maxRejectText)]
	_, err = fmt.Fprintf(r.f, "%d\t%s\t%s\n", row.Line, oneLine([]byte(strings.ReplaceAll(row.Reason, "\t", " "))), oneLine(text))
	return err
}

// oneLine keeps a record of several lines on one.
func oneLine(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for _, c := range b {
		switch c {
		case '\n':
			out = append(out, `\n`...)
		case '\r':
			out = append(out, `\r`...)
		default:
			out = append(out, c)
		}
	}
	return out
}

func (r *rejectsFile) close(complete bool) error {
	if r.f != nil {
		return r.f.Close()
	}
	if !complete {
		return nil
	}
	if err := os.Remove(r.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
