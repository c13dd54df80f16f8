package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// proc is a child process whose first line of output is an address.
type proc struct {
	cmd  *exec.Cmd
	addr string
}

func start(name string, args ...string) (*proc, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s %s said nothing: %w", name, strings.Join(args, " "), err), cmd.Process.Kill(), cmd.Wait())
	}
	return &proc{cmd: cmd, addr: strings.TrimSpace(line)}, nil
}

func (p *proc) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil // ended by our signal
	}
	return err
}

// cpu is the processor time, in seconds, that a process has used so far.
func cpu(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// Fields 14 and 15, counted behind the command in brackets, which is field 2; in ticks of 1/100 s.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	user, err := strconv.ParseFloat(f[11], 64)
	if err != nil {
		return 0, err
	}
	sys, err := strconv.ParseFloat(f[12], 64)
	return (user + sys) / 100, err
}

// rss is the resident memory of a process in MiB, and its peak.
func rss(pid int) (now, peak float64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kb, _ := strconv.ParseFloat(f[1], 64)
		switch f[0] {
		case "VmRSS:":
			now = kb / 1024
		case "VmHWM:":
			peak = kb / 1024
		}
	}
	return now, peak, nil
}

func selfCPU() float64 {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return 0
	}
	return seconds(ru.Utime) + seconds(ru.Stime)
}

func seconds(t syscall.Timeval) float64 {
	return time.Duration(t.Nano()).Seconds()
}

// runLoad starts a load process and waits for its result.
func runLoad(spec loadSpec) (loadResult, error) {
	in, err := json.Marshal(spec)
	if err != nil {
		return loadResult{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return loadResult{}, err
	}
	cmd := exec.Command(self, "load")
	cmd.Stdin = bytes.NewReader(in)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return loadResult{}, fmt.Errorf("load %s: %w", spec.Path, err)
	}
	var res loadResult
	err = json.Unmarshal(out, &res)
	return res, err
}
